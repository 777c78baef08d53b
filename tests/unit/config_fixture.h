/* config_fixture: one loading of the configuration in a test, from an INI text, an environment and flags. */
#ifndef CONFIG_FIXTURE_H
#define CONFIG_FIXTURE_H

#include "config.h"
#include "mem.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define FIXTURE_ARGS_MAX 16

struct fixture {
    struct config *c;
    struct config_report report;
    enum config_action action;
    char path[64]; /* of the INI file; empty = none */
};

/* ini: the text of the file that --config names, NULL = none. args and env end with NULL, NULL = none. */
static inline struct fixture fixture_load_bytes(struct slice ini, char *const *args, char *const *env)
{
    static char *no_env[] = {NULL};
    struct fixture f = {.path = ""};
    char name[] = "kthena-router", config[] = "--config", *argv[FIXTURE_ARGS_MAX] = {name};
    struct config_inputs in = {.argc = 1, .argv = argv, .env = no_env};

    if (ini.p != NULL) {
        int fd;

        (void)snprintf(f.path, sizeof(f.path), "/tmp/test_config.XXXXXX");
        fd = mkstemp(f.path);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, ini.p, ini.n), ini.n);
        assert_int_equal(close(fd), 0);
        argv[in.argc++] = config;
        argv[in.argc++] = f.path;
    }
    for (size_t i = 0; args != NULL && args[i] != NULL; i++) {
        assert_true(in.argc < FIXTURE_ARGS_MAX);
        argv[in.argc++] = args[i];
    }
    if (env != NULL)
        memcpy(&in.env, &env, sizeof(env));
    f.c = config_load(&in, &f.action, &f.report);
    if (ini.p != NULL)
        assert_int_equal(unlink(f.path), 0);
    return f;
}

static inline struct fixture fixture_load(const char *ini, char *const *args, char *const *env)
{
    return fixture_load_bytes(slice_of(ini), args, env);
}

static inline void fixture_free(struct fixture *f)
{
    config_free(f->c);
    config_report_free(&f->report);
}

static inline void fixture_print(const struct fixture *f)
{
    for (size_t i = 0; i < f->report.n; i++)
        print_message("  %s: %s\n", f->report.problems[i].fatal ? "fatal" : "warning",
                      f->report.problems[i].text);
}

/* Exactly one problem says all of `part`, and it is fatal or not as given. */
static inline void fixture_expect(const struct fixture *f, bool fatal, const char *part)
{
    size_t found = 0;

    for (size_t i = 0; i < f->report.n; i++) {
        if (strstr(f->report.problems[i].text, part) == NULL)
            continue;
        found++;
        assert_int_equal(f->report.problems[i].fatal, fatal);
    }
    if (found != 1) {
        fixture_print(f);
        fail_msg("%zu problems say \"%s\"; expected one", found, part);
    }
}

static inline void fixture_expect_count(const struct fixture *f, size_t fatal, size_t all)
{
    if (f->report.n_fatal != fatal || f->report.n != all) {
        fixture_print(f);
        fail_msg("%zu problems, %zu of them fatal; expected %zu and %zu", f->report.n, f->report.n_fatal, all,
                 fatal);
    }
}

static inline void fixture_expect_value(const struct config *c, enum config_option o, const char *text,
                                        enum config_origin origin)
{
    struct buf b;

    buf_init(&b, 1 << 20);
    assert_true(config_value(c, o, &b) && buf_append(&b, "", 1));
    if (strcmp(buf_slice(&b).p, text) != 0 || c->origins[o] != origin)
        fail_msg("%s is \"%s\" with origin %d; expected \"%s\" with origin %d", config_env_name(o),
                 buf_slice(&b).p, (int)c->origins[o], text, (int)origin);
    buf_free(&b);
}

/* Lists for the calls above. */
#define LIST(...) ((char *[]){__VA_ARGS__, NULL})

#endif
