/* make torture: reads the command line, runs, prints the table. */
#include "torture.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

struct settings settings = {
    .requests = 20000, .round = 10000, .only = UINT32_MAX, .clients = 100, .episode_rounds = 5};

static void usage(void)
{
    fputs("usage: torture --router FILE [--preload FILE] [--requests N] [--seed N] [--round N] [--clients N] "
          "[--rounds-per-start N] [--only N] [--calm] [--verbose]\n"
          "  --preload the library that lets the router's wall clock jump\n"
          "  --seed    the same seed plays the same requests; without it one is chosen and printed\n"
          "  --round   requests between two moments of quiet in which all counters must be zero\n"
          "  --only    every request is a copy of request N of the seed\n"
          "  --seconds S --rate R   a soak: R requests per second for S seconds, one start of the router\n"
          "  --calm    nothing happens around the requests\n",
          stderr);
    exit(2);
}

static uint64_t number(const char *text)
{
    char *end;
    const unsigned long long n = text == NULL ? 0 : strtoull(text, &end, 10);

    if (text == NULL || *text == '\0' || *end != '\0')
        usage();
    return n;
}

static void read_arguments(int argc, char **argv)
{
    if (getrandom(&settings.seed, sizeof settings.seed, 0) < 0)
        settings.seed = 1;
    settings.seed %= 1000000000;
    for (int i = 1; i < argc; i++) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(name, "--calm") == 0) {
            settings.calm = true;
            continue;
        }
        if (strcmp(name, "--verbose") == 0) {
            settings.verbose = true;
            continue;
        }
        i++;
        if (strcmp(name, "--router") == 0)
            settings.router = value;
        else if (strcmp(name, "--preload") == 0)
            settings.preload = value;
        else if (strcmp(name, "--requests") == 0)
            settings.requests = (uint32_t)number(value);
        else if (strcmp(name, "--seed") == 0)
            settings.seed = number(value);
        else if (strcmp(name, "--round") == 0)
            settings.round = (uint32_t)number(value);
        else if (strcmp(name, "--clients") == 0)
            settings.clients = (unsigned)number(value);
        else if (strcmp(name, "--rounds-per-start") == 0)
            settings.episode_rounds = (unsigned)number(value);
        else if (strcmp(name, "--seconds") == 0)
            settings.seconds = (uint32_t)number(value);
        else if (strcmp(name, "--rate") == 0)
            settings.rate = (uint32_t)number(value);
        else if (strcmp(name, "--only") == 0)
            settings.only = (uint32_t)number(value);
        else
            usage();
    }
    if (settings.router == NULL || settings.round == 0 || settings.clients == 0)
        usage();
}

int main(int argc, char **argv)
{
    char directory[] = "/tmp/torture-XXXXXX";
    struct rlimit r;
    int64_t start_us;

    read_arguments(argc, argv);
    if (settings.seconds > 0) {
        settings.requests = UINT32_MAX - 1;
        settings.episode_rounds = UINT_MAX;
        settings.round = settings.rate > 0 ? settings.rate * 15 : settings.round;
    }
    signal(SIGPIPE, SIG_IGN);
    if (getrlimit(RLIMIT_NOFILE, &r) == 0) {
        r.rlim_cur = r.rlim_max < 65536 ? r.rlim_max : 65536;
        setrlimit(RLIMIT_NOFILE, &r);
    }
    settings.directory = mkdtemp(directory);
    if (settings.directory == NULL) {
        perror(directory);
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("torture: seed %llu, %u requests\n", (unsigned long long)settings.seed, settings.requests);
    start_us = util_now_us();
    loop_open();
    dns_open();
    pods_open();
    clients_open(settings.clients);
    world_start();
    loop_run();
    world_close();
    clients_close();
    pods_close();
    dns_close();
    loop_close();
    rmdir(directory);
    if (settings.seconds > 0)
        soak_table();
    soak_close();
    oracle_table((double)(util_now_us() - start_us) / 1e6);
    return tally.wrong + tally.duplicates + tally.lost + tally.leaks + tally.deaths > 0 ? 1 : 0;
}
