/* cors: the Fetch standard's words. It owns no connection; preflights are answered by front. */
#include "cors.h"
#include "mem.h"

#define CORS_ASKED_MAX 1024 /* of the header names that a preflight asks for; browsers ask for a few */

static bool is_allowed(const struct config *c, struct slice origin, bool *any)
{
    *any = false;
    for (size_t i = 0; i < c->n_cors_origins; i++) {
        *any = slice_eq(c->cors_origins[i], SLICE("*"));
        if (*any || slice_eq(origin, c->cors_origins[i]))
            return true;
    }
    return false;
}

char *cors_fields(const struct config *c, struct slice origin)
{
    bool any;

    if (origin.n == 0 || !is_allowed(c, origin, &any))
        return NULL;
    if (any)
        return mem_strdup("Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: *\r\n");
    return mem_printf("Access-Control-Allow-Origin: %.*s\r\nAccess-Control-Expose-Headers: *\r\n",
                      SLICE_ARG(origin));
}

char *cors_preflight_fields(const struct http1_head *head)
{
    const struct slice asked = http1_find_name(head, SLICE("Access-Control-Request-Headers"));
    const bool echo = asked.n > 0 && asked.n <= CORS_ASKED_MAX;

    return mem_printf("Access-Control-Allow-Methods: GET, HEAD, POST, PUT, PATCH, DELETE\r\n%s%.*s%s"
                      "Access-Control-Max-Age: 7200\r\n",
                      echo ? "Access-Control-Allow-Headers: " : "", echo ? (int)asked.n : 0,
                      echo ? asked.p : "", echo ? "\r\n" : "");
}
