/* Flags and exit codes: 0 = done, 1 = problems found by --check or at start (unknown flags are such). */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "config.h"
#include "libs.h"
#include "log.h"
#include "mem.h"
#include "server.h"
#include "tls.h"

#define MAIN_TEXT_MAX (4 * 1024 * 1024)

/* The exit code; a full disk under stdout does not go unnoticed. */
static int main_end_output(void)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    fprintf(stderr, "kthena-router: error: cannot write to stdout: %s\n", strerror(errno));
    return 1;
}

static int main_write(const struct buf *out)
{
    (void)fwrite(buf_slice(out).p, 1, out->len, stdout);
    return main_end_output();
}

static int main_print(bool (*text)(struct buf *out))
{
    struct buf out;
    int status = 1;

    buf_init(&out, MAIN_TEXT_MAX);
    if (text(&out))
        status = main_write(&out);
    buf_free(&out);
    return status;
}

static int main_print_config(const struct config *c)
{
    struct buf out;
    int status = 1;

    buf_init(&out, MAIN_TEXT_MAX);
    if (config_print(c, &out))
        status = main_write(&out);
    buf_free(&out);
    return status;
}

static void main_print_report(const struct config_report *r)
{
    for (size_t i = 0; i < r->n; i++)
        fprintf(stderr, "kthena-router: %s: %s\n", r->problems[i].fatal ? "error" : "warning",
                r->problems[i].text);
}

/* The file, or the directory in which it would be made, can be written. Nothing is created. */
static bool main_can_write(const char *path)
{
    char *copy = mem_strdup(path);
    const bool ok =
        access(path, F_OK) == 0 ? access(path, W_OK) == 0 : access(dirname(copy), W_OK | X_OK) == 0;

    mem_free(copy);
    return ok;
}

static void main_check_access_log(const struct config *c, struct config_report *r)
{
    const char *output = c->access_log_output;

    if (strcmp(output, "stdout") != 0 && strcmp(output, "stderr") != 0 && !main_can_write(output))
        config_report_add(r, true, "ACCESS_LOG_OUTPUT: cannot write %.250s: %s", output, strerror(errno));
}

static void main_check_authorities(const struct config *c, struct config_report *r)
{
    struct tls_context *tls;
    char *error;

    if (c->upstream_tls_ca[0] == '\0')
        return;
    tls = tls_context_client(c->upstream_tls_ca, &error);
    if (tls == NULL)
        config_report_add(r, true, "UPSTREAM_TLS_CA: %s", error);
    tls_context_free(tls);
    mem_free(error);
}

static void main_check_certificate(const struct config *c, struct config_report *r)
{
    struct tls_context *tls;
    char *error;

    if (c->tls_cert[0] == '\0' || c->tls_key[0] == '\0')
        return;
    tls = tls_context_server(c->tls_cert, c->tls_key, &error);
    if (tls == NULL)
        config_report_add(r, true, "ROUTER_TLS_CERT, ROUTER_TLS_KEY: %s", error);
    else if (tls_context_dates(tls) != NULL)
        config_report_add(r, false, "ROUTER_TLS_CERT: the certificate in %.250s %s: clients will refuse it",
                          c->tls_cert, tls_context_dates(tls));
    tls_context_free(tls);
    mem_free(error);
}

static int main_check(const struct config_report *r)
{
    if (r->n_fatal > 0)
        fprintf(stderr, "kthena-router: %zu problem(s)\n", r->n_fatal);
    else
        printf("kthena-router: the configuration is good\n");
    return r->n_fatal > 0 ? 1 : main_end_output();
}

static int main_run(const struct config_inputs *in, struct config *c, const struct config_report *report)
{
    static struct server server;
    int status = 1;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a log that may not grow any more loses lines, no more than that */
    log_init((enum log_level)c->log_level, (enum log_format)c->log_format);
    server_log_report(report);
    if (report->n_fatal > 0) {
        config_free(c);
    } else {
        if (server_start(&server, in, c)) {
            server_run(&server);
            status = 0;
        }
        server_free(&server);
    }
    log_sink_close(log_sink());
    return status;
}

/* Started with a standard descriptor closed, the next socket would get its number, and log lines would go to
 * a client. */
static bool main_hold_standard_fds(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd < 0)
        return false;
    close(fd);
    return true;
}

/* Until the loop takes it (server_watch_signals): a reload that is asked for so early does not end the
 * router.
 */
static void main_hold_hangup(void)
{
    sigset_t hangup;

    sigemptyset(&hangup);
    sigaddset(&hangup, SIGHUP);
    sigprocmask(SIG_BLOCK, &hangup, NULL);
}

int main(int argc, char **argv)
{
    const struct config_inputs in = {argc, argv, environ};
    struct config_report report = {0};
    enum config_action action;
    struct config *c;
    int status = 0;

    main_hold_hangup();
    if (!main_hold_standard_fds()) {
        fprintf(stderr, "kthena-router: error: cannot open /dev/null: %s\n", strerror(errno));
        return 1;
    }
    if (!libs_use_mem()) {
        fputs("kthena-router: error: OpenSSL does not take our allocator\n", stderr);
        return 1;
    }
    c = config_load(&in, &action, &report);
    switch (action) {
    case CONFIG_HELP:
        status = main_print(config_help);
        break;
    case CONFIG_VERSION:
        printf("kthena-router %s\n", CONFIG_VERSION_TEXT);
        status = main_end_output();
        break;
    case CONFIG_EXAMPLE:
        status = main_print(config_example);
        break;
    case CONFIG_OPTIONS_DOC:
        status = main_print(config_options_doc);
        break;
    case CONFIG_PRINT:
        main_print_report(&report);
        status = report.n_fatal > 0 ? 1 : main_print_config(c);
        break;
    case CONFIG_CHECK:
        main_check_access_log(c, &report);
        main_check_certificate(c, &report);
        main_check_authorities(c, &report);
        server_check_surroundings(c, &report);
        main_print_report(&report);
        status = main_check(&report);
        break;
    case CONFIG_RUN:
        status = main_run(&in, c, &report);
        c = NULL;
        break;
    }
    config_free(c);
    config_report_free(&report);
    return status;
}
