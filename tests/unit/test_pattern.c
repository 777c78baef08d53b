/* Patterns: what they match, what is refused, and that time does not run away; random ones against regexec.
 */
#include "pattern.h"
#include "buf.h"
#include "mem.h"
#include "test.h"

#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static bool matches(const char *text, struct slice value)
{
    const char *error;
    struct pattern *p = pattern_new(slice_of(text), &error);
    bool found;

    if (p == NULL)
        fail_msg("%s: %s", text, error);
    found = pattern_matches(p, value);
    assert_int_equal(found, pattern_matches(p, value)); /* nothing is left behind */
    pattern_free(p);
    return found;
}

static void test_table(void **state)
{
    static const struct {
        const char *pattern, *yes[6], *no[6];
    } table[] = {
        {"", {"", "x"}, {NULL}},
        {"gold", {"gold", "marigolds"}, {"", "gol", "GOLD"}},
        {"^gold$", {"gold"}, {"gold ", "xgold", "gold\n"}},
        {"\\Agold\\z", {"gold"}, {"goldx", "xgold"}},
        {"^(premium|gold)-[0-9]+$", {"premium-1", "gold-22"}, {"gold-", "silver-1", "premium-1a"}},
        {"^(?i)premium$", {"premium", "PreMium"}, {"premiun"}},
        {"(?i:a)b", {"ab", "Ab"}, {"aB"}},
        {"(?i)a(?-i)b", {"Ab"}, {"AB"}},
        {"((?i)a)b", {"Ab"}, {"AB"}},
        {"(?i)[a-c]\\x41", {"bA", "CA", "Ca"}, {"dA"}},
        {"a.c",
         {"abc", "a\xc3\xa9"
                 "c"},
         {"a\nc", "ac"}},
        {"(?s)a.c", {"a\nc"}, {"ac"}},
        {"^.{3}$", {"abc", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"}, {"ab", "abcd", "\xff\xff\xff"}},
        {"^[^a-c]+$", {"xyz", "\xc3\xa9"}, {"xaz", ""}},
        {"^[\xc3\xa9x]+$", {"\xc3\xa9x\xc3\xa9"}, {"\xc3\xa8", "\xc3"}},
        {"^\xc3\xa9+$", {"\xc3\xa9\xc3\xa9"}, {"\xc3\xa9\xa9"}},
        {"^[]a]+$", {"]a"}, {"b"}},
        {"^[a\\-\\]]+$", {"a-]"}, {"b"}},
        {"^[a-]+$", {"a-"}, {"b"}},
        {"^[\\d\\s]+$", {"1 2"}, {"a"}},
        {"^[^\\D]+$", {"12"}, {"1a", "\xc3\xa9"}},
        {"^[\\W]+$", {"-\xc3\xa9"}, {"a"}},
        {"^[[:alpha:]_]+$", {"a_Z"}, {"1"}},
        {"^[[:word:]]+$", {"a_1"}, {"-"}},
        {"^\\d\\D\\w\\W\\s\\S$", {"1aa- x"}, {"aaa- x"}},
        {"\\bcat\\b", {"cat", "a cat!"}, {"cats", "concat"}},
        {"\\Bcat", {"concat"}, {"cat", "a cat"}},
        {"(?m)^b$", {"a\nb\nc"}, {"ab"}},
        {"^(?P<who>a)(?<what>b)(?:c)$", {"abc"}, {"ab"}},
        {"^a{2}$", {"aa"}, {"a", "aaa"}},
        {"^a{2,}$", {"aa", "aaaa"}, {"a"}},
        {"^a{1,3}$", {"a", "aaa"}, {"", "aaaa"}},
        {"^(ab){0,2}$", {"", "ab", "abab"}, {"a", "ababab"}},
        {"^a{,3}$", {"a{,3}"}, {"a"}},
        {"^x{$", {"x{"}, {"x"}},
        {"^a+?b*?c??$", {"a", "aabbc"}, {"b"}},
        {"^(a*)*b$", {"b", "aab"}, {"a"}},
        {"^(|a)+$", {"", "aa"}, {"b"}},
        {"a||b", {"", "x"}, {NULL}},
        {"^\\Qa.b*\\E$", {"a.b*"}, {"axb"}},
        {"^\\Qa.b", {"a.b"}, {"axb"}},
        {"^\\.\\*\\/\\$$", {".*/$"}, {"x"}},
        {"^\\x{20ac}\\x41\\t$",
         {"\xe2\x82\xac"
          "A\t"},
         {"A\t"}},
        {"^/v1/(chat/)?completions$", {"/v1/completions", "/v1/chat/completions"}, {"/v1/chat"}},
        {"((((((((((x))))))))))", {"x"}, {"y"}},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        for (size_t k = 0; k < 6 && table[i].yes[k] != NULL; k++) {
            if (!matches(table[i].pattern, slice_of(table[i].yes[k])))
                fail_msg("%s does not match %s", table[i].pattern, table[i].yes[k]);
        }
        for (size_t k = 0; k < 6 && table[i].no[k] != NULL; k++) {
            if (matches(table[i].pattern, slice_of(table[i].no[k])))
                fail_msg("%s matches %s", table[i].pattern, table[i].no[k]);
        }
    }
}

static void refuse(const char *text, const char *part)
{
    const char *error = NULL;
    struct pattern *p = pattern_new(slice_of(text), &error);

    if (p != NULL || error == NULL || strstr(error, part) == NULL)
        fail_msg("%.40s: \"%s\"; expected \"%s\"", text, error == NULL ? "accepted" : error, part);
}

static void test_refused(void **state)
{
    char text[PATTERN_TEXT_MAX + 2];

    (void)state;
    refuse("(a", "( has no )");
    refuse("a)b", ") has no (");
    refuse("[a", "[ has no ]");
    refuse("[a-", "[ has no ]");
    refuse("a\\", "ends in a backslash");
    refuse("[\\", "ends in a backslash");
    refuse("*a", "a repeat of nothing");
    refuse("a|+", "a repeat of nothing");
    refuse("a**", "a repeat of a repeat");
    refuse("a++", "a repeat of a repeat");
    refuse("(a)\\1", "backreferences");
    refuse("\\k", "unknown escape");
    refuse("\\pL", "\\p is not supported");
    refuse("(?=a)", "look-around");
    refuse("(?!a)", "look-around");
    refuse("(?<=a)b", "look-around");
    refuse("(?<!a)b", "look-around");
    refuse("(?>a)", "look-around");
    refuse("(?P=a)", "look-around");
    refuse("(?P<a-b>c)", "a group's name");
    refuse("(?i", "( has no )");
    refuse("[b-a]", "backwards");
    refuse("[\xc3\xa9-z]", "ASCII");
    refuse("[^\xc3\xa9]", "ASCII");
    refuse("\\x4", "hexadecimal");
    refuse("\\x{110000}", "hexadecimal");
    refuse("\\x{41", "hexadecimal");
    refuse("a{2,1}", "n <= m <= 1000");
    refuse("a{1001}", "n <= m <= 1000");
    refuse("(a{100}){100}", "too large");
    refuse("(((a{100}){100}){100}){100}", "too large");
    memset(text, '(', sizeof(text));
    text[sizeof(text) - 1] = '\0';
    refuse(text, "longer than 1024 bytes");
    text[sizeof(text) - 2] = '\0';
    refuse(text, "nested too deeply");
    memset(text, '.', sizeof(text));
    text[PATTERN_TEXT_MAX] = '\0';
    refuse(text, "too large");
}

static void test_values_are_bounded(void **state)
{
    char *value = mem_alloc(PATTERN_VALUE_MAX + 1);

    (void)state;
    memset(value, 'a', PATTERN_VALUE_MAX + 1);
    assert_true(matches("^a*$", (struct slice){value, PATTERN_VALUE_MAX}));
    assert_false(matches("^a*$", (struct slice){value, PATTERN_VALUE_MAX + 1}));
    assert_true(matches("^$", (struct slice){NULL, 0}));
    mem_free(value);
}

static double cpu_s(void)
{
    return (double)clock() / CLOCKS_PER_SEC;
}

/* Each of these takes a backtracking matcher minutes on a value of this size. */
static void test_time_is_linear(void **state)
{
    static const char *const patterns[] = {
        "(a+)+[bc]$",  "([ab]*a[ab]*)[cd]",     "(a|a|a|a)*[bc]", "(a?){100}a{100}[bc]$",
        "(x+x+)+[yz]", "(.*)(.*)(.*)(.*)[cd]$", "((a*)*)*[bc]"};
    char *value = mem_alloc(PATTERN_VALUE_MAX);
    const double start_s = cpu_s();

    (void)state;
    for (size_t i = 0; i < PATTERN_VALUE_MAX; i++)
        value[i] = i % 7 == 6 ? 'b' : 'a';
    for (size_t i = 0; i < ARRAY_LEN(patterns); i++)
        (void)matches(patterns[i], (struct slice){value, PATTERN_VALUE_MAX});
    assert_true(cpu_s() - start_s < 5); /* a hundredth of that without sanitizers */
    mem_free(value);
}

/* ---- against regexec, on the syntax both have ---- */

static uint64_t dice = 7;

static unsigned random_below(unsigned n)
{
    dice = dice * UINT64_C(6364136223846793005) + 1442695040888963407U;
    return (unsigned)(dice >> 33) % n;
}

static void put_random(struct buf *b, unsigned depth)
{
    static const char *const atoms[] = {"a", "b", "c", ".", "[ab]", "[^b]", "bc", "\\w"};
    static const char *const repeats[] = {"", "", "", "*", "+", "?", "{2}", "{0,2}", "{1,}"};

    for (unsigned i = random_below(3) + 1; i > 0; i--) {
        if (depth > 0 && random_below(3) == 0) {
            assert_true(buf_append(b, "(", 1));
            put_random(b, depth - 1);
            if (random_below(2) == 0) {
                assert_true(buf_append(b, "|", 1));
                put_random(b, depth - 1);
            }
            assert_true(buf_append(b, ")", 1));
        } else {
            assert_true(buf_append_slice(b, slice_of(atoms[random_below(ARRAY_LEN(atoms))])));
        }
        assert_true(buf_append_slice(b, slice_of(repeats[random_below(ARRAY_LEN(repeats))])));
    }
}

static void check_random(void)
{
    char text[256], value[12];
    struct buf b;
    regex_t judge;

    buf_init(&b, sizeof(text));
    if (random_below(3) == 0)
        assert_true(buf_append(&b, "^", 1));
    put_random(&b, 2);
    if (random_below(3) == 0)
        assert_true(buf_append(&b, "$", 1));
    (void)snprintf(text, sizeof(text), "%.*s", SLICE_ARG(buf_slice(&b)));
    buf_free(&b);
    assert_int_equal(regcomp(&judge, text, REG_EXTENDED | REG_NOSUB), 0);
    for (int i = 0; i < 20; i++) {
        const unsigned n = random_below(sizeof(value));

        for (unsigned k = 0; k < n; k++)
            value[k] = (char)('a' + random_below(4));
        value[n] = '\0';
        if (matches(text, slice_of(value)) != (regexec(&judge, value, 0, NULL, 0) == 0))
            fail_msg("%s and \"%s\"", text, value);
    }
    regfree(&judge);
}

static void test_random(void **state)
{
    (void)state;
    for (int i = 0; i < 2000; i++)
        check_random();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_values_are_bounded),
        cmocka_unit_test(test_time_is_linear),
        cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
