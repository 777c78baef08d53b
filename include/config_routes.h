/* config_routes: the servers and routes of a struct config: lists of pods, the quick form, and the checks
 * between them. */
#ifndef CONFIG_ROUTES_H
#define CONFIG_ROUTES_H

#include "config.h"

/* Where a text came from, for error texts: a variable or flag with line 0, or a file with a line. */
struct config_place {
    const char *name;
    size_t line;
};

/* NULL above CONFIG_SERVERS_MAX. Both copy the name; the pointer is valid until the next call. */
struct config_server *config_routes_add_server(struct config *c, struct slice name, size_t line);
struct route_spec *config_routes_add_route(struct config *c, struct slice name, size_t line);
/* Adds the pods of a list separated by commas and white space. What is wrong with it is reported as fatal. */
void config_routes_add_pods(struct config_server *s, struct slice list, struct config_place at,
                            struct config_report *report);
/* Adds the model-servers of a list "NAME, NAME" or "NAME:WEIGHT, ..." as they are written: weights are told
 * from names in config_routes_resolve. */
void config_routes_add_targets(struct route_rule_spec *r, struct slice list, struct config_place at,
                               struct config_report *report);
/* Adds the names of a list separated by commas. */
void config_routes_add_adapters(struct route_spec *s, struct slice list, struct config_place at,
                                struct config_report *report);
/* Adds the sources of a list "header:NAME, cookie:NAME, query:NAME". */
void config_routes_add_sources(struct route_spec *s, struct slice list, struct config_place at,
                               struct config_report *report);
/* The rule of a route's own targets, which stands behind the named ones; made when there is none. */
struct route_rule_spec *config_routes_own_rule(struct route_spec *s);
/* Adds a server and a route for each MODEL=host:port,... of the text. The first '=' ends the model name:
 * slashes, colons and dots may stand in it, '=' and ';' not. */
void config_routes_add_backends(struct config *c, struct slice text, struct config_report *report);
/* True: well-formed. False: *error lists what is not, freed by the caller. */
MUST_CHECK bool config_routes_check_backends(struct slice text, char **error);
/* Joins routes with their servers; reports unknown targets, weights that do not fit and names given twice.
 * file: the INI file, NULL = none. Every route has a model. */
void config_routes_resolve(struct config *c, const char *file, struct config_report *report);
/* What is allowed and of no use: servers without a route, rules and routes that are never reached. */
void config_routes_check_use(const struct config *c, struct config_report *report);
void config_routes_free(struct config *c);

#endif
