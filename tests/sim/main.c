/* vllm-sim: a simulated vLLM or SGLang pod for tests and benchmarks. This file starts and stops it. */
#include "sim.h"

#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

static void raise_descriptor_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void signal_ready(struct loop_io *io, uint32_t events)
{
    (void)io;
    (void)events;
    loop_stop();
}

static void watch_signals(struct loop_io *io)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    *io = (struct loop_io){.fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC), .ready = signal_ready};
    loop_watch(io, EPOLLIN);
}

int main(int argc, char **argv)
{
    struct loop_io signals;
    bool refuse;
    int status = config_read_arguments(argc, argv);
    if (status >= 0) {
        util_free_interned();
        return status;
    }
    raise_descriptor_limit();
    loop_open();
    watch_signals(&signals);
    cache_set_capacity(cfg.kv_blocks);
    metrics_reset();
    status =
        !http_listen(&cfg.port, false) || (cfg.control_port >= 0 && !http_listen(&cfg.control_port, true));
    refuse = cfg.fault.kind == FAULT_REFUSE;
    if (status == 0) {
        http_refuse(refuse);
        http_print_address("listening on", cfg.port);
        if (cfg.control_port >= 0)
            http_print_address("control on", cfg.control_port);
        loop_run();
    }
    http_close_all();
    close(signals.fd);
    loop_close();
    cache_free();
    control_free();
    util_free_interned();
    return status;
}
