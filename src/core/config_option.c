/* config_option: the table of config.def as data. It owns names, syntax and range of one option; not where a
 * value comes from, nor what options mean to each other. */
#include "config_option.h"
#include "authority.h"
#include "config_routes.h"
#include "duration.h"
#include "mem.h"
#include "number.h"

#include <assert.h>
#include <ctype.h>
#include <math.h>
#include <stdio.h>

static struct config_option_row rows[CONFIG_OPTION_COUNT] = {
#define OPTION(field, type_, ctype, env_, def, min_, max_, choices_, restart_, help_)                        \
    [CONFIG_OPT_##field] = {.env = (env_),                                                                   \
                            .initial = (def),                                                                \
                            .choices = (choices_),                                                           \
                            .help = (help_),                                                                 \
                            .type = CONFIG_TYPE_##type_,                                                     \
                            .offset = offsetof(struct config, field),                                        \
                            .min = (min_),                                                                   \
                            .max = (max_),                                                                   \
                            .restart = (restart_)},
#include "config.def"
#undef OPTION
};

static const struct {
    enum config_option first;
    const char *title;
} groups[] = {
#define OPTION(field, type, ctype, env, def, min, max, choices, restart, help)
#define GROUP(first_field, title) {CONFIG_OPT_##first_field, title},
#include "config.def"
#undef OPTION
};

/* ---- names ---- */

/* Lower case without a leading "router_", with `dash` between words. */
static void derive_name(const char *env, char dash, char out[CONFIG_OPTION_NAME_MAX])
{
    size_t skip = slice_starts(slice_of(env), SLICE("ROUTER_")) ? sizeof("ROUTER_") - 1 : 0;
    size_t n = 0;

    for (const char *p = env + skip; *p != '\0' && n + 1 < CONFIG_OPTION_NAME_MAX; p++)
        out[n++] = *p == '_' ? dash : (char)tolower((unsigned char)*p);
    out[n] = '\0';
}

const struct config_option_row *config_option_row(enum config_option o)
{
    static bool named;

    if (!named) {
        for (size_t i = 0; i < CONFIG_OPTION_COUNT; i++) {
            derive_name(rows[i].env, '_', rows[i].key);
            derive_name(rows[i].env, '-', rows[i].flag);
        }
        for (size_t i = 0; i < ARRAY_LEN(groups); i++)
            rows[groups[i].first].group = groups[i].title;
        named = true;
    }
    return &rows[o];
}

enum config_option config_option_by_key(struct slice key)
{
    enum config_option o = 0;

    while (o < CONFIG_OPTION_COUNT && !slice_eq(key, slice_of(config_option_row(o)->key)))
        o++;
    return o;
}

enum config_option config_option_by_flag(struct slice flag)
{
    enum config_option o = 0;

    while (o < CONFIG_OPTION_COUNT && !slice_eq(flag, slice_of(config_option_row(o)->flag)))
        o++;
    return o;
}

void config_option_choices(const struct config_option_row *row, char out[CONFIG_OPTION_NAME_MAX])
{
    size_t n = 0;

    for (const char *p = row->choices; *p != '\0' && n + 3 < CONFIG_OPTION_NAME_MAX; p++) {
        out[n++] = *p == '|' ? ',' : *p;
        if (*p == '|')
            out[n++] = ' ';
    }
    out[n] = '\0';
}

/* ---- where a value is stored ---- */

static void *field_of(struct config *c, enum config_option o)
{
    return (char *)c + rows[o].offset;
}

static const void *const_field_of(const struct config *c, enum config_option o)
{
    return (const char *)c + rows[o].offset;
}

static const char *string_of(const struct config *c, enum config_option o)
{
    return *(char *const *)const_field_of(c, o);
}

static double fraction_of(const struct config *c, enum config_option o)
{
    return *(const double *)const_field_of(c, o);
}

/* Of all types but STRING and NUMBER. */
static int64_t number_of(const struct config *c, enum config_option o)
{
    const void *field = const_field_of(c, o);

    if (rows[o].type == CONFIG_TYPE_BOOL)
        return *(const bool *)field ? 1 : 0;
    if (rows[o].type == CONFIG_TYPE_ENUM)
        return *(const int *)field;
    return *(const int64_t *)field;
}

static void store_number(struct config *c, enum config_option o, int64_t value)
{
    void *field = field_of(c, o);

    if (rows[o].type == CONFIG_TYPE_BOOL)
        *(bool *)field = value != 0;
    else if (rows[o].type == CONFIG_TYPE_ENUM)
        *(int *)field = (int)value;
    else
        *(int64_t *)field = value;
}

static void store_string(struct config *c, enum config_option o, struct slice text)
{
    char **field = field_of(c, o);
    char *copy = mem_dup_slice(text);

    mem_free(*field);
    *field = copy;
}

bool config_option_same(const struct config *a, const struct config *b, enum config_option o)
{
    if (rows[o].type == CONFIG_TYPE_STRING)
        return strcmp(string_of(a, o), string_of(b, o)) == 0;
    if (rows[o].type == CONFIG_TYPE_NUMBER)
        return !(fraction_of(a, o) < fraction_of(b, o)) && !(fraction_of(a, o) > fraction_of(b, o));
    return number_of(a, o) == number_of(b, o);
}

void config_option_copy(struct config *to, const struct config *from, enum config_option o)
{
    if (rows[o].type == CONFIG_TYPE_STRING)
        store_string(to, o, slice_of(string_of(from, o)));
    else if (rows[o].type == CONFIG_TYPE_NUMBER)
        *(double *)field_of(to, o) = fraction_of(from, o);
    else
        store_number(to, o, number_of(from, o));
    to->origins[o] = from->origins[o];
}

void config_option_free_all(struct config *c)
{
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++) {
        if (rows[o].type == CONFIG_TYPE_STRING)
            mem_free(*(char **)field_of(c, o));
    }
}

/* ---- numbers from text ---- */

static bool parse_enum(const char *choices, struct slice text, int64_t *value)
{
    struct slice rest = slice_of(choices);

    for (*value = 0; rest.p != NULL; ++*value) {
        if (slice_eq(slice_cut(&rest, '|'), text))
            return true;
    }
    return false;
}

static bool parse_number(const struct config_option_row *row, struct slice text, int64_t *value)
{
    bool truth;

    switch (row->type) {
    case CONFIG_TYPE_BOOL:
        if (!duration_parse_bool(text, &truth))
            return false;
        *value = truth ? 1 : 0;
        return true;
    case CONFIG_TYPE_DURATION:
        return duration_parse(text, value);
    case CONFIG_TYPE_BYTES:
        return duration_parse_bytes(text, value);
    case CONFIG_TYPE_ENUM:
        return parse_enum(row->choices, text, value);
    default:
        return duration_parse_int(text, value);
    }
}

/* The range a value of this type must be in; BOOL and ENUM have none. */
static bool in_range(const struct config_option_row *row, int64_t value)
{
    if (row->type == CONFIG_TYPE_BOOL || row->type == CONFIG_TYPE_ENUM)
        return true;
    return value >= row->min && value <= row->max;
}

/* Not what a metrics page may hold beyond numbers: NaN and the infinities. */
static char *set_fraction(struct config *c, enum config_option o, struct slice text)
{
    const struct config_option_row *row = config_option_row(o);
    double value;

    if (!number_parse(text, &value) || !isfinite(value))
        return mem_strdup("not a number: expected one such as 1.0, 0.25 or 2e3");
    if (value < (double)row->min || value > (double)row->max)
        return mem_printf("out of range: expected %lld to %lld", (long long)row->min, (long long)row->max);
    *(double *)field_of(c, o) = value;
    return NULL;
}

static void format_number(const struct config_option_row *row, int64_t value, char out[DURATION_TEXT_MAX])
{
    size_t n = 0;

    if (row->type == CONFIG_TYPE_DURATION)
        n = duration_format(value, out);
    else if (row->type == CONFIG_TYPE_BYTES)
        n = duration_format_bytes(value, out);
    else
        n = (size_t)snprintf(out, DURATION_TEXT_MAX, "%lld", (long long)value);
    out[n] = '\0';
}

static char *range_error(const struct config_option_row *row)
{
    char min[DURATION_TEXT_MAX], max[DURATION_TEXT_MAX];

    format_number(row, row->min, min);
    format_number(row, row->max, max);
    if (row->max == INT64_MAX)
        return mem_printf("out of range: expected at least %s", min);
    return mem_printf("out of range: expected %s to %s", min, max);
}

static char *syntax_error(const struct config_option_row *row)
{
    char words[CONFIG_OPTION_NAME_MAX];

    switch (row->type) {
    case CONFIG_TYPE_BOOL:
        return mem_strdup("not a boolean: expected true or false");
    case CONFIG_TYPE_DURATION:
        return mem_strdup("not a duration: expected a number with a unit, such as 250ms, 30s or 1m30s");
    case CONFIG_TYPE_BYTES:
        return mem_strdup("not a size: expected bytes, such as 65536, 64KiB or 1GiB");
    case CONFIG_TYPE_ENUM:
        config_option_choices(row, words);
        return mem_printf("not a known word: expected one of %s", words);
    case CONFIG_TYPE_PORT:
        return mem_strdup("not a port: expected a number from 0 to 65535");
    default:
        return mem_strdup("not a whole number");
    }
}

/* ---- texts with a syntax of their own ---- */

static char *check_header_list(struct slice text)
{
    for (struct slice rest = text; rest.p != NULL;) {
        struct slice name = slice_trim(slice_cut(&rest, ','));

        if (name.n == 0)
            return mem_strdup("an empty header name: expected one name or several, separated by commas");
        if (route_key_header_problem(name) != NULL)
            return mem_printf("\"%.*s\" %s", CONFIG_SHOWN(name), route_key_header_problem(name));
    }
    return NULL;
}

/* "https://app.example.com", as browsers send it. */
static bool is_origin(struct slice s)
{
    const char *authority = s.n == 0 ? NULL : memmem(s.p, s.n, "://", 3);

    for (size_t i = 0; i < s.n; i++) {
        if (s.p[i] <= ' ' || s.p[i] > '~')
            return false;
    }
    return slice_eq(s, SLICE("*")) || slice_eq(s, SLICE("null")) ||
           (authority != NULL && authority + 3 < s.p + s.n &&
            memchr(authority + 3, '/', (size_t)(s.p + s.n - authority) - 3) == NULL);
}

static char *check_origins(struct slice text)
{
    for (struct slice rest = text; rest.p != NULL && text.n > 0;) {
        const struct slice origin = slice_trim(slice_cut(&rest, ','));

        if (!is_origin(origin))
            return mem_printf("\"%.*s\" is not an origin: expected *, or one such as https://app.example.com "
                              "without a path, or several, separated by commas",
                              CONFIG_SHOWN(origin));
    }
    return NULL;
}

static char *check_bind(struct slice text)
{
    if (text.n == 0 || authority_is_ip(text))
        return NULL;
    return mem_strdup("not an IPv4 or IPv6 address (without port and brackets)");
}

/* NULL: fine. */
static char *check_string(enum config_option o, struct slice text)
{
    char *error = NULL;

    if (memchr(text.p, '\0', text.n) != NULL)
        return mem_strdup("holds a zero byte");
    if (o == CONFIG_OPT_session_boost_header || o == CONFIG_OPT_fairness_user_header)
        return check_header_list(text);
    if (o == CONFIG_OPT_cors_allow_origins)
        return check_origins(text);
    if (o == CONFIG_OPT_bind)
        return check_bind(text);
    if (o == CONFIG_OPT_access_log_output && text.n == 0)
        return mem_strdup("empty: expected stdout, stderr or a file name");
    if (o == CONFIG_OPT_backends && !config_routes_check_backends(text, &error))
        return error;
    return NULL;
}

bool config_option_set(struct config *c, enum config_option o, struct slice text, char **error)
{
    const struct config_option_row *row = config_option_row(o);
    int64_t value;

    *error = NULL;
    if (row->type == CONFIG_TYPE_STRING) {
        *error = check_string(o, text);
        if (*error == NULL)
            store_string(c, o, text);
        return *error == NULL;
    }
    if (row->type == CONFIG_TYPE_NUMBER) {
        *error = set_fraction(c, o, text);
        return *error == NULL;
    }
    if (!parse_number(row, text, &value))
        *error = syntax_error(row);
    else if (!in_range(row, value))
        *error = range_error(row);
    else
        store_number(c, o, value);
    return *error == NULL;
}

void config_option_set_defaults(struct config *c)
{
    for (enum config_option o = 0; o < CONFIG_OPTION_COUNT; o++) {
        char *error;
        bool ok = config_option_set(c, o, slice_of(rows[o].initial), &error);

        assert(ok && "config.def: a default is not valid");
        (void)ok;
        c->origins[o] = CONFIG_DEFAULT;
    }
}

bool config_option_format(const struct config *c, enum config_option o, struct buf *out)
{
    const struct config_option_row *row = config_option_row(o);
    char text[DURATION_TEXT_MAX], fraction[NUMBER_TEXT_MAX];

    if (row->type == CONFIG_TYPE_NUMBER)
        return buf_append(out, fraction, number_format(fraction_of(c, o), fraction));
    if (row->type == CONFIG_TYPE_STRING)
        return buf_append_slice(out, slice_of(string_of(c, o)));
    if (row->type == CONFIG_TYPE_BOOL)
        return buf_append_slice(out, number_of(c, o) != 0 ? SLICE("true") : SLICE("false"));
    if (row->type == CONFIG_TYPE_ENUM) {
        struct slice rest = slice_of(row->choices), word = slice_cut(&rest, '|');

        for (int64_t i = number_of(c, o); i > 0; i--)
            word = slice_cut(&rest, '|');
        return buf_append_slice(out, word);
    }
    format_number(row, number_of(c, o), text);
    return buf_append_slice(out, slice_of(text));
}
