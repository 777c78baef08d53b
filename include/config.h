/* config: every option of the router in one table (config.def), and the pods and routes of the INI file.
 * Reads defaults, INI file, environment and flags, in rising precedence; checks them; prints help, the
 * effective values, the sample file and the options page. Opens nothing but the INI file. A struct config
 * never changes after loading: a reload makes a new one. */
#ifndef CONFIG_H
#define CONFIG_H

#include "buf.h"
#include "promtext.h"
#include "route.h"

enum config_origin { CONFIG_DEFAULT, CONFIG_INI, CONFIG_ENV, CONFIG_FLAG };

/* The words of SESSION_STICKY, in their order. */
enum config_sticky { CONFIG_STICKY_OFF, CONFIG_STICKY_PREFER };

enum config_option {
#define OPTION(field, type, ctype, env, def, min, max, choices, restart, help) CONFIG_OPT_##field,
#include "config.def"
#undef OPTION
    CONFIG_OPTION_COUNT
};

/* [model-server NAME], or one MODEL= part of ROUTER_BACKENDS. Exactly one of pods, dns and service is given.
 */
struct config_server {
    char *name;
    char **pods; /* authorities: "host:port", "1.2.3.4:port", "[v6]:port"; checked */
    size_t n_pods;
    char *dns;     /* "host:port" or NULL: every address of the name is a pod */
    char *service; /* "[namespace/]name[:port]" of a Kubernetes Service, or NULL; checked */
    bool given;    /* none of them: a ModelServer, whose pods are told as they come and go */
    enum promtext_engine engine;
    char *model;        /* the name the pods use; NULL = the public one, bodies untouched */
    bool https;         /* to the pods; their certificates are verified */
    char *tls_name;     /* the name in them; NULL = the host of `dns`, or of the pod */
    int64_t timeout_us; /* to the answer's head; 0 = UPSTREAM_HEADER_TIMEOUT */
    size_t line;        /* of its section in the INI file; 0 = from ROUTER_BACKENDS */
};

struct config {
#define OPTION(field, type, ctype, env, def, min, max, choices, restart, help) ctype field;
#include "config.def"
#undef OPTION
    enum config_origin origins[CONFIG_OPTION_COUNT];
    char *file;                    /* the INI file that was read, or NULL */
    struct slice *session_headers; /* SESSION_BOOST_HEADER as a list, in order */
    size_t n_session_headers;
    struct slice *cors_origins; /* CORS_ALLOW_ORIGINS, the same; none: off */
    size_t n_cors_origins;
    struct slice *user_headers; /* FAIRNESS_USER_HEADER, the same */
    size_t n_user_headers;
    struct config_server *servers;
    size_t n_servers;
    struct route_spec *routes; /* oldest first */
    size_t n_routes;
};

/* What loading had to say; each text names the place (file:line, variable, flag), the value, and what was
 * expected. */
struct config_problem {
    bool fatal;
    char *text;
};
struct config_report {
    struct config_problem *problems;
    size_t n, cap;
    size_t n_fatal;
};

#define CONFIG_PROBLEMS_MAX 200
#define CONFIG_SERVERS_MAX  4096 /* and as many routes */
#define CONFIG_NAME_MAX     160  /* bytes of a server's, route's, rule's, model's or adapter's name */
#define CONFIG_PODS_MAX     4096 /* in one server's list */

enum config_action {
    CONFIG_RUN,
    CONFIG_HELP,
    CONFIG_VERSION,
    CONFIG_PRINT,
    CONFIG_CHECK,
    CONFIG_EXAMPLE,
    CONFIG_OPTIONS_DOC
};

/* What the process was started with; kept for reloads. Borrowed, as main() has it. */
struct config_inputs {
    int argc;
    char **argv;
    char **env; /* "NAME=value", NULL-terminated */
};

/* Never NULL; unusable when report->n_fatal > 0. A bad environment value is a warning and the default, or
 * fatal under --check; bad INI lines and flags are always fatal. All problems are listed, not only the first.
 */
struct config *config_load(const struct config_inputs *in, enum config_action *action,
                           struct config_report *report);
void config_free(struct config *c);
/* Control bytes become '?'. Above CONFIG_PROBLEMS_MAX problems are counted, but not kept. */
void config_report_add(struct config_report *r, bool fatal, const char *fmt, ...) PRINTF_LIKE(3, 4);
void config_report_free(struct config_report *r);
/* Adds a warning for each option that needs a restart and differs, and copies the running value into `next`,
 * so that next describes what is in force. */
void config_keep_restart_options(struct config *next, const struct config *running,
                                 struct config_report *report);

/* Texts; each appends to out. */
MUST_CHECK bool config_help(struct buf *out);
MUST_CHECK bool config_print(const struct config *c,
                             struct buf *out);       /* option = value  (origin), then servers and routes */
MUST_CHECK bool config_example(struct buf *out);     /* config/router.ini.example */
MUST_CHECK bool config_options_doc(struct buf *out); /* config/OPTIONS.md */
/* The effective value of one option as text. */
MUST_CHECK bool config_value(const struct config *c, enum config_option o, struct buf *out);
const char *config_env_name(enum config_option o);

/* Given by the Makefile. */
#define CONFIG_VERSION_TEXT ROUTER_VERSION

#endif
