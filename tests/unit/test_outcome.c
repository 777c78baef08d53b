/* The table of endings: what clients and dashboards rely on in every row. */
#include "outcome.h"

#include "test.h"

static bool is_snake_case(const char *name)
{
    return strspn(name, "abcdefghijklmnopqrstuvwxyz_") == strlen(name) && name[0] != '\0' && name[0] != '_';
}

static void test_names_are_unique(void **state)
{
    (void)state;
    for (unsigned a = 0; a < OUTCOME_COUNT; a++) {
        assert_true(is_snake_case(outcome_info((enum outcome)a)->name));
        for (unsigned b = 0; b < a; b++)
            assert_string_not_equal(outcome_info((enum outcome)a)->name, outcome_info((enum outcome)b)->name);
    }
}

/* An error body has a status of ours, one of the three types and a text. */
static void test_rows_are_complete(void **state)
{
    (void)state;
    for (unsigned i = 0; i < OUTCOME_COUNT; i++) {
        const struct outcome_info *o = outcome_info((enum outcome)i);

        if (o->type == NULL)
            continue;
        assert_non_null(o->text);
        assert_true(strlen(o->text) > 0);
        if (o->status >= 500)
            assert_string_equal(o->type, "server_error");
        else if (o->status == 429)
            assert_string_equal(o->type, "rate_limit_error");
        else
            assert_string_equal(o->type, "invalid_request_error");
        assert_true(o->status >= 400);
    }
}

/* Clients and their retry rules depend on these. */
static void test_statuses(void **state)
{
    static const struct {
        enum outcome outcome;
        unsigned status;
        const char *part_of_text;
    } rows[] = {
        {OUTCOME_BAD_JSON, 400, "JSON"},
        {OUTCOME_NO_MODEL, 400, "model"},
        {OUTCOME_BAD_HTTP, 400, "HTTP"},
        {OUTCOME_ROUTE_NOT_FOUND, 404, "route not found"},
        {OUTCOME_PATH_NOT_FOUND, 404, "/v1/"},
        {OUTCOME_CLIENT_TIMEOUT, 408, ""},
        {OUTCOME_BODY_TOO_LARGE, 413, ""},
        {OUTCOME_URI_TOO_LONG, 414, ""},
        {OUTCOME_QUEUE_FULL, 429, "queue"},
        {OUTCOME_QUEUE_BYTES, 429, ""},
        {OUTCOME_HEAD_TOO_LARGE, 431, ""},
        {OUTCOME_POD_PROTOCOL, 502, ""},
        {OUTCOME_POD_RESET, 502, ""},
        {OUTCOME_NO_POD, 503, ""},
        {OUTCOME_CONNECT_FAILED, 503, ""},
        {OUTCOME_SHUTDOWN, 503, ""},
        {OUTCOME_QUEUE_TIMEOUT, 504, "Request processing timed out in queue"},
        {OUTCOME_POD_HEAD_TIMEOUT, 504, ""},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct outcome_info *o = outcome_info(rows[i].outcome);

        assert_int_equal(o->status, rows[i].status);
        assert_non_null(strstr(o->text, rows[i].part_of_text));
    }
}

/* The Go router's labels of requests that a pod answered, and the pod's own status. */
static void test_answers_of_pods(void **state)
{
    (void)state;
    assert_string_equal(outcome_info(OUTCOME_OK)->name, "successful_request");
    assert_string_equal(outcome_info(OUTCOME_POD_ERROR_STATUS)->name, "request_failed");
    assert_int_equal(outcome_info(OUTCOME_OK)->status, 0);
    assert_int_equal(outcome_info(OUTCOME_POD_ERROR_STATUS)->status, 0);
    assert_null(outcome_info(OUTCOME_OK)->type);
    assert_null(outcome_info(OUTCOME_POD_ERROR_STATUS)->type);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_unique),
        cmocka_unit_test(test_rows_are_complete),
        cmocka_unit_test(test_statuses),
        cmocka_unit_test(test_answers_of_pods),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
