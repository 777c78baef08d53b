/* Polling instead of inotify: a mounted Secret is changed by swapping a link in a directory above the files,
 * and a network file system reports nothing. */
#include "certificate.h"

#include "log.h"
#include "mem.h"
#include "metrics.h"

/* All zero for a file that is not there. */
static void certificate_look(const struct certificate *c, struct stat now[2])
{
    const char *const files[] = {c->cert_file, c->key_file};

    memset(now, 0, 2 * sizeof *now);
    for (size_t i = 0; i < 2; i++)
        if (stat(files[i], &now[i]) < 0)
            memset(&now[i], 0, sizeof now[i]);
}

static bool certificate_same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_dev == b->st_dev && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* The look comes before the reading: what changes in between is seen next time. */
static bool certificate_read(struct certificate *c, char **error)
{
    struct tls_context *next;

    certificate_look(c, c->seen);
    next = tls_context_server(c->cert_file, c->key_file, error);
    if (next == NULL)
        return false;
    tls_context_free(c->context);
    c->context = next;
    metrics_set(metrics_series(METRIC_TLS_EXPIRY, NULL), (double)tls_context_expires_s(next));
    log_info("certificate in use", LOG_STR("file", c->cert_file),
             LOG_INT("ends_s", tls_context_expires_s(next)));
    if (tls_context_dates(next) != NULL)
        log_warn("clients will refuse the certificate in use", LOG_STR("file", c->cert_file),
                 LOG_STR("reason", tls_context_dates(next)));
    return true;
}

static void certificate_wait(struct certificate *c)
{
    loop_timer_set(c->loop, &c->timer, loop_now_us(c->loop) + CERTIFICATE_CHECK_US);
}

static void certificate_on_timer(struct wheel_timer *t)
{
    struct certificate *c = CONTAINER_OF(t, struct certificate, timer);
    struct stat now[2];
    char *error = NULL;

    certificate_look(c, now);
    if ((!certificate_same(&now[0], &c->seen[0]) || !certificate_same(&now[1], &c->seen[1])) &&
        !certificate_read(c, &error))
        log_error("the certificate was changed and cannot be used: the one before stays in use",
                  LOG_STR("error", error));
    mem_free(error);
    certificate_wait(c);
}

bool certificate_start(struct certificate *c, struct loop *l, const char *cert_file, const char *key_file,
                       char **error)
{
    memset(c, 0, sizeof *c);
    c->loop = l;
    wheel_timer_init(&c->timer, certificate_on_timer);
    if (cert_file[0] == '\0')
        return true;
    c->cert_file = mem_strdup(cert_file);
    c->key_file = mem_strdup(key_file);
    if (!certificate_read(c, error))
        return false;
    certificate_wait(c);
    return true;
}

bool certificate_reload(struct certificate *c, char **error)
{
    return c->cert_file == NULL || certificate_read(c, error);
}

void certificate_free(struct certificate *c)
{
    if (c->loop != NULL)
        loop_timer_cancel(c->loop, &c->timer);
    tls_context_free(c->context);
    mem_free(c->cert_file);
    mem_free(c->key_file);
    memset(c, 0, sizeof *c);
}
