/* Allocation: copies, sizes of 0, and the abort with its line. What aborts runs in a child process. */
#include "mem.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static void test_copies(void **state)
{
    char *text = mem_dup_slice((struct slice){"abcdef", 3});

    (void)state;
    assert_string_equal(text, "abc");
    mem_free(text);
    text = mem_dup_slice((struct slice){NULL, 0});
    assert_string_equal(text, "");
    mem_free(text);
    text = mem_strdup("xyz");
    assert_string_equal(text, "xyz");
    mem_free(text);
    text = mem_printf("%s-%d", "pod", 7);
    assert_string_equal(text, "pod-7");
    mem_free(text);
    mem_free(NULL);
}

static void test_sizes(void **state)
{
    char *p = mem_alloc(0);
    unsigned char *zeros = mem_zalloc(100);

    (void)state;
    assert_non_null(p);
    p = mem_realloc(p, 0);
    assert_non_null(p);
    mem_free(p);
    for (int i = 0; i < 100; i++)
        assert_int_equal(zeros[i], 0);
    zeros = mem_array(zeros, 50, 4);
    zeros[199] = 1;
    mem_free(zeros);
}

static void test_an_array_that_grows_one_by_one(void **state)
{
    size_t *items = NULL;

    (void)state;
    for (size_t n = 0; n < 1000; n++) {
        items = mem_grow(items, n, sizeof(*items));
        items[n] = n;
    }
    for (size_t i = 0; i < 1000; i++)
        assert_int_equal(items[i], i);
    mem_free(items);
}

static void test_tables(void **state)
{
    static const size_t sizes_bytes[] = {0, 1, 64, 100, 2 << 20, (2 << 20) + 1, 5000000};

    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(sizes_bytes); i++) {
        char *p = mem_table(sizes_bytes[i]);

        assert_int_equal((uintptr_t)p % (sizes_bytes[i] < 2 << 20 ? 64 : 2 << 20), 0);
        memset(p, 1, sizes_bytes[i]);
        mem_free(p);
    }
}

/* Runs fn in a child; its stderr goes to text. Returns the signal that ended it, 0 for none. */
static int run_child(void (*fn)(void), char *text, size_t room)
{
    int fds[2], status;
    pid_t pid;
    ssize_t n;
    size_t len = 0;

    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0) {
        const struct rlimit no_core = {0, 0};

        (void)setrlimit(RLIMIT_CORE, &no_core);
        (void)signal(SIGABRT, SIG_DFL);
        (void)dup2(fds[1], STDERR_FILENO);
        (void)close(fds[0]);
        (void)close(fds[1]);
        fn();
        _exit(0);
    }
    (void)close(fds[1]);
    while (len < room - 1 && (n = read(fds[0], text + len, room - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = '\0';
    (void)close(fds[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void third_fails(void)
{
    mem_fail_at(3);
    mem_free(mem_alloc(1));
    mem_free(mem_zalloc(1));
    mem_free(mem_alloc(77));
}

static void product_overflows(void)
{
    mem_free(mem_array(NULL, SIZE_MAX / 2, 3));
}

static void printf_fails(void)
{
    mem_fail_at(1);
    mem_free(mem_printf("%d", 1));
}

static void table_fails(void)
{
    mem_fail_at(1);
    mem_free(mem_table(10));
}

static void table_too_large(void)
{
    mem_free(mem_table(SIZE_MAX - 5));
}

static void none_fails(void)
{
    mem_fail_at(2);
    mem_free(mem_alloc(1));
    mem_fail_at(0);
    mem_free(mem_alloc(1));
    mem_free(mem_alloc(1));
}

static void test_abort(void **state)
{
    char text[512];

    (void)state;
    assert_int_equal(run_child(third_fails, text, sizeof(text)), SIGABRT);
    assert_non_null(strstr(text, "out of memory (77 bytes asked for)\n"));
    assert_int_equal(run_child(product_overflows, text, sizeof(text)), SIGABRT);
    assert_non_null(strstr(text, "out of memory"));
    assert_int_equal(run_child(printf_fails, text, sizeof(text)), SIGABRT);
    assert_int_equal(run_child(table_fails, text, sizeof(text)), SIGABRT);
    assert_int_equal(run_child(table_too_large, text, sizeof(text)), SIGABRT);
    assert_int_equal(run_child(none_fails, text, sizeof(text)), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_an_array_that_grows_one_by_one),
        cmocka_unit_test(test_tables),
        cmocka_unit_test(test_abort),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
