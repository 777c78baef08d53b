/* Which origins are told that they may read an answer, and what a preflight is told. */
#include "cors.h"
#include "mem.h"

#include "test.h"

#define ANY    "Access-Control-Allow-Origin: *\r\nAccess-Control-Expose-Headers: *\r\n"
#define ONE    "Access-Control-Allow-Origin: http://a\r\nAccess-Control-Expose-Headers: *\r\n"
#define METHOD "Access-Control-Allow-Methods: GET, HEAD, POST, PUT, PATCH, DELETE\r\n"
#define AGE    "Access-Control-Max-Age: 7200\r\n"

/* want: NULL = not allowed. */
static void check_origin(const char *allowed, const char *origin, const char *want)
{
    struct slice origins[] = {SLICE("http://b"), slice_of(allowed)};
    const struct config c = {.cors_origins = origins, .n_cors_origins = ARRAY_LEN(origins)};
    char *fields = cors_fields(&c, slice_of(origin));

    if (want == NULL)
        assert_null(fields);
    else
        assert_string_equal(fields, want);
    mem_free(fields);
}

static void test_origins(void **state)
{
    const struct config off = {.n_cors_origins = 0};

    (void)state;
    check_origin("http://a", "http://a", ONE);
    check_origin("http://a", "http://a.example", NULL);
    check_origin("http://a", "HTTP://A", NULL); /* browsers send it in lower case: compared byte by byte */
    check_origin("http://a", NULL, NULL);       /* no page asks */
    check_origin("*", "http://a", ANY);
    check_origin("*", NULL, NULL);
    assert_null(cors_fields(&off, SLICE("http://a")));
}

static void check_preflight(const char *field, const char *want)
{
    char *data = mem_printf("OPTIONS /v1/models HTTP/1.1\r\nHost: h\r\n%s\r\n", field);
    struct http1_head head;
    struct http1 h;
    char *fields;

    http1_start(&h, HTTP1_REQUEST, &head, 65536, false);
    assert_int_equal(http1_head(&h, data, strlen(data)), strlen(data));
    fields = cors_preflight_fields(&head);
    assert_string_equal(fields, want);
    mem_free(fields);
    mem_free(data);
}

static void test_preflights(void **state)
{
    char *many = mem_printf("Access-Control-Request-Headers: %01025d\r\n", 0);

    (void)state;
    check_preflight("", METHOD AGE);
    check_preflight("Access-Control-Request-Headers: x-session-id,authorization\r\n",
                    METHOD "Access-Control-Allow-Headers: x-session-id,authorization\r\n" AGE);
    check_preflight(many, METHOD AGE); /* more than any page needs is not echoed */
    mem_free(many);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_origins),
        cmocka_unit_test(test_preflights),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
