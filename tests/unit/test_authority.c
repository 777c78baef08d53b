/* Addresses of pods: what is accepted, how it is spelled afterwards, and what the errors say. */
#include "authority.h"
#include "mem.h"
#include "test.h"

#include <stdio.h>

static void check(const char *text, const char *expected)
{
    const char *error;
    char *authority;

    if (!authority_parse(slice_of(text), &authority, &error))
        fail_msg("\"%s\": %s", text, error);
    assert_string_equal(authority, expected);
    assert_null(error);
    mem_free(authority);
}

static void refuse(const char *text, const char *part)
{
    const char *error;
    char *authority;

    if (authority_parse(slice_of(text), &authority, &error))
        fail_msg("\"%s\" was accepted as %s", text, authority);
    assert_null(authority);
    if (strstr(error, part) == NULL)
        fail_msg("\"%s\": \"%s\" does not say \"%s\"", text, error, part);
}

static void test_accepted(void **state)
{
    (void)state;
    check("pod-0.pods.ns.svc.cluster.local:8000", "pod-0.pods.ns.svc.cluster.local:8000");
    check("Pod_A:00080", "pod_a:80");
    check("name.:1", "name.:1");
    check("10.0.0.1:65535", "10.0.0.1:65535");
    check("0.0.0.0:1", "0.0.0.0:1");
    check("10.1.2.3a:1", "10.1.2.3a:1");
}

static void test_ipv6_has_one_spelling(void **state)
{
    (void)state;
    check("[::1]:8000", "[::1]:8000");
    check("[::]:1", "[::]:1");
    check("[0:0:0:0:0:0:0:1]:1", "[::1]:1");
    check("[FE80:0:0:1::00A0]:1", "[fe80:0:0:1::a0]:1");
    check("[1:0:2:0:0:3:0:0]:1", "[1:0:2::3:0:0]:1");
    check("[1:2:3:4:5:6:7::]:1", "[1:2:3:4:5:6:7:0]:1");
    check("[1:2:3:4:5:6:7:8]:1", "[1:2:3:4:5:6:7:8]:1");
    check("[1::]:1", "[1::]:1");
    check("[::ffff:1.2.3.4]:1", "[::ffff:102:304]:1");
    check("[1:2:3:4:5:6:1.2.3.4]:1", "[1:2:3:4:5:6:102:304]:1");
}

static void test_refused(void **state)
{
    (void)state;
    refuse("", "expected name:port");
    refuse("host", "port is missing");
    refuse("host:", "port is missing");
    refuse(":80", "host is missing");
    refuse("host:0", "port 0");
    refuse("host:65536", "above 65535");
    refuse("host:99999999999999999999", "above 65535");
    refuse("host:8o", "not a number");
    refuse("host:+1", "not a number");
    refuse("http://host:80", "not a URL");
    refuse("::1", "needs brackets");
    refuse("fd00::1:8000", "needs brackets");
    refuse("[::1]", "port is missing");
    refuse("[::1]x:1", "port is missing");
    refuse("[::1", "']' is missing");
    refuse("[::1]:0", "port 0");
    refuse("a/b:1", "character other than");
    refuse("a b:1", "character other than");
    refuse("a..b:1", "empty part");
    refuse(".a:1", "empty part");
    refuse("10.0.0.256:1", "not an IPv4 address");
    refuse("10.0.0:1", "not an IPv4 address");
    refuse("10.0.0.01:1", "not an IPv4 address");
    refuse("1234:1", "not an IPv4 address");
}

static void test_refused_ipv6(void **state)
{
    static const char *const bad[] = {"",
                                      ":",
                                      "1",
                                      ":1",
                                      "1:",
                                      ":::",
                                      "1::2::3",
                                      "12345::",
                                      "g::",
                                      "1:2:3:4:5:6:7",
                                      "::1.2.3",
                                      "1.2.3.4::",
                                      "::1.2.3.4:1",
                                      "fe80::1%eth0",
                                      "1:2:3:4:5:6:7:8:9",
                                      "1:2:3:4:5:6:7:8::",
                                      "1:2:3:4:5:6:7:1.2.3.4",
                                      "1.2.3.4"};
    char text[64];

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_true((size_t)snprintf(text, sizeof(text), "[%s]:1", bad[i]) < sizeof(text));
        refuse(text, "not an IPv6 address");
    }
}

static void test_long_names(void **state)
{
    char text[300];

    (void)state;
    memset(text, 'a', sizeof(text));
    memcpy(text + 63, ":1", 3);
    check(text, text);
    memset(text, 'a', sizeof(text));
    memcpy(text + 64, ":1", 3);
    refuse(text, "longer than 63");
    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = i % 2 == 0 ? 'a' : '.';
    memcpy(text + 253, ":1", 3);
    check(text, text);
    text[253] = 'a';
    memcpy(text + 254, ":1", 3);
    refuse(text, "longer than 253");
}

static void test_is_ip(void **state)
{
    (void)state;
    assert_true(authority_is_ip(SLICE("127.0.0.1")));
    assert_true(authority_is_ip(SLICE("::")));
    assert_false(authority_is_ip(SLICE("localhost")));
    assert_false(authority_is_ip(SLICE("[::]")));
    assert_false(authority_is_ip(SLICE("")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),   cmocka_unit_test(test_ipv6_has_one_spelling),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_refused_ipv6),
        cmocka_unit_test(test_long_names), cmocka_unit_test(test_is_ip),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
