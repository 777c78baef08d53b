/* Sinks: nothing blocks, nothing is lost silently, lines stay whole. */
#include "log_sink.h"
#include "mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"

static char temp_dir[] = "/tmp/test_log_sink.XXXXXX";

static char *temp_path(const char *name)
{
    return mem_printf("%s/%s", temp_dir, name);
}

static void expect_file(const char *path, const char *want)
{
    char text[256];
    FILE *f = fopen(path, "r");
    size_t n;

    assert_non_null(f);
    n = fread(text, 1, sizeof(text) - 1, f);
    text[n] = '\0';
    (void)fclose(f);
    assert_string_equal(text, want);
}

/* A sink that writes into a new pipe, opened as the configuration opens one; *reader is the other end. */
static void open_pipe_sink(struct log_sink *s, int *reader)
{
    int fds[2];
    char path[64], *error;

    assert_int_equal(pipe(fds), 0);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[1]);
    assert_true(log_sink_open(s, path, &error));
    assert_false(s->may_block);
    (void)close(fds[1]);
    *reader = fds[0];
}

/* As stdout or stderr are when /proc is missing: the shared, blocking descriptor itself. */
static void open_blocking_sink(struct log_sink *s, int *reader)
{
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    *s = (struct log_sink){.fd = fds[1], .owns_fd = true, .may_block = true};
    buf_init(&s->pending, LOG_SINK_BUFFER_BYTES);
    *reader = fds[0];
}

#define NUMBERED_BYTES 115

static void write_numbered(struct log_sink *s, int from, int to)
{
    for (int i = from; i < to; i++) {
        char line[128];
        int n = snprintf(line, sizeof(line), "line %08d %0100d\n", i, 0);

        log_sink_write(s, (struct slice){line, (size_t)n});
    }
}

/* Reads what is there; every line must be whole and numbered upwards. Returns how many lines came. */
static int read_lines(struct log_sink *s, int reader)
{
    char *all = mem_alloc(4 * LOG_SINK_BUFFER_BYTES + 1);
    size_t len = 0;
    int n_lines = 0, last = -1;

    assert_int_equal(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
    for (;;) {
        ssize_t n = read(reader, all + len, 4 * LOG_SINK_BUFFER_BYTES - len);

        if (n <= 0 && s->pending.len == 0)
            break;
        len += n > 0 ? (size_t)n : 0;
        log_sink_flush(s);
    }
    all[len] = '\0';
    for (char *p = all; p < all + len; n_lines++) {
        int number;

        assert_int_equal(sscanf(p, "line %d ", &number), 1);
        assert_true(number > last);
        last = number;
        assert_int_equal(p[NUMBERED_BYTES - 1], '\n');
        p += NUMBERED_BYTES;
    }
    mem_free(all);
    return n_lines;
}

static void take_lines(int reader, size_t n_lines)
{
    char bytes[NUMBERED_BYTES];

    for (; n_lines > 0; n_lines--)
        assert_int_equal(read(reader, bytes, sizeof(bytes)), sizeof(bytes));
}

/* It stands behind what is left of the others, and on a line of its own. */
static void expect_last_line(int reader, const char *start)
{
    char bytes[3 * NUMBERED_BYTES];
    ssize_t n;

    while ((n = read(reader, bytes, sizeof(bytes))) == (ssize_t)sizeof(bytes))
        ;
    assert_true(n > NUMBERED_BYTES);
    assert_int_equal(bytes[n - NUMBERED_BYTES - 1], '\n');
    assert_memory_equal(bytes + n - NUMBERED_BYTES, start, strlen(start));
}

static void expect_numbered_file(const char *path, int from, int to)
{
    FILE *f = fopen(path, "r");
    char line[NUMBERED_BYTES + 1];
    int number;

    assert_non_null(f);
    for (int i = from; i < to; i++) {
        assert_non_null(fgets(line, sizeof(line), f));
        assert_int_equal(sscanf(line, "line %d ", &number), 1);
        assert_int_equal(number, i);
    }
    assert_null(fgets(line, sizeof(line), f));
    (void)fclose(f);
}

/* Both logs into one pipe: neither writes into a line of the other. */
static void test_shared_pipe(void **state)
{
    struct log_sink a, b;
    char path[64], *error;
    int reader;

    (void)state;
    open_pipe_sink(&a, &reader);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", a.fd);
    assert_true(log_sink_open(&b, path, &error));
    log_sink_pair(&a, &b);
    write_numbered(&a, 0, 1000); /* more than a pipe holds */
    log_sink_flush(&a);
    assert_true(a.mid_line);
    write_numbered(&b, 1000, 1010);
    take_lines(reader, 80);
    log_sink_flush(&b); /* what there is room for now is a's, and it does not end with a line either */
    assert_true(a.mid_line);
    assert_int_equal(b.pending.len, 10 * NUMBERED_BYTES);
    take_lines(reader, 560);
    log_sink_flush(&b); /* room for all */
    assert_int_equal(a.pending.len, 0);
    assert_int_equal(read_lines(&b, reader), 1000 - 80 - 560 + 10);
    log_sink_close(&b);
    log_sink_flush(&a); /* which stands alone again */
    log_sink_close(&a);
    (void)close(reader);
}

/* Both logs write to one named pipe; returns its reader. */
static int open_pair_on_fifo(struct log_sink *a, struct log_sink *b, const char *path)
{
    char *error;
    int reader;

    assert_int_equal(mkfifo(path, 0600), 0);
    reader = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_true(log_sink_open(a, path, &error) && log_sink_open(b, path, &error));
    log_sink_pair(a, b);
    return reader;
}

/* As SIGHUP does it. */
static void rotate(struct log_sink *a, struct log_sink *b)
{
    char *error;

    assert_true(log_sink_reopen(b, &error));
    log_sink_pair(a, b);
}

/* The half of a line that one log leaves in the pipe for good ends before the other one's next line. */
static void test_shared_pipe_is_given_up(void **state)
{
    struct log_sink a, b;
    char path[64], *error;
    int reader;

    (void)state;
    (void)alarm(60);
    open_pipe_sink(&a, &reader);
    (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", a.fd);
    assert_true(log_sink_open(&b, path, &error));
    log_sink_pair(&a, &b);
    write_numbered(&a, 0, 1000);
    log_sink_close(&a); /* nobody reads on in time */
    take_lines(reader, 560);
    write_numbered(&b, 1000, 1001);
    log_sink_flush(&b);
    expect_last_line(reader, "line 00001000 ");
    log_sink_close(&b);
    (void)alarm(0);
    (void)close(reader);
}

/* The access log is moved away and opened anew: the two have nothing to do with each other any more. */
static void test_pair_parts_at_a_rotation(void **state)
{
    char *path = temp_path("fifo");
    struct log_sink a, b;
    int reader = open_pair_on_fifo(&a, &b, path);

    (void)state;
    write_numbered(&b, 0, 1000);
    log_sink_flush(&b);
    assert_true(b.mid_line);
    rotate(&a, &b); /* the same one: nothing changes */
    assert_true(a.beside == &b && b.beside == &a && b.mid_line && b.dropped == 0);
    assert_int_equal(unlink(path), 0);
    rotate(&a, &b);
    assert_null(a.beside);
    assert_null(b.beside);
    assert_int_equal(b.dropped, 1); /* the line that the pipe holds half of */
    log_sink_flush(&b);
    assert_int_equal(b.pending.len, 0);
    write_numbered(&a, 1000, 1001);
    take_lines(reader, 65536 / NUMBERED_BYTES);
    log_sink_flush(&a);
    assert_int_equal(a.pending.len, 0);
    expect_last_line(reader, "line 00001000 ");
    log_sink_finish(&a);
    log_sink_finish(&b);
    assert_int_equal(a.dropped + b.dropped, 1);
    log_sink_close(&a);
    log_sink_close(&b);
    expect_numbered_file(path, 65536 / NUMBERED_BYTES + 1, 1000);
    assert_int_equal(close(reader) + unlink(path), 0);
    mem_free(path);
}

/* A log that has moved to a file of its own does not wait for the line of the other one. */
static void test_rotation_ends_the_waiting(void **state)
{
    char *path = temp_path("fifo");
    struct log_sink a, b;
    int reader = open_pair_on_fifo(&a, &b, path);

    (void)state;
    write_numbered(&a, 0, 1000);
    log_sink_flush(&a);
    assert_true(a.mid_line);
    log_sink_write(&b, SLICE("one\n"));
    log_sink_flush(&b);
    assert_int_equal(b.pending.len, 4); /* it waits */
    assert_int_equal(unlink(path), 0);
    rotate(&a, &b);
    log_sink_flush(&b);
    expect_file(path, "one\n");
    assert_true(a.mid_line);
    assert_int_equal(read_lines(&a, reader), 1000);
    log_sink_close(&a);
    log_sink_close(&b);
    assert_int_equal(close(reader) + unlink(path), 0);
    mem_free(path);
}

/* A line that was cut in the old file is nothing that the new one has to do with. Paired again, they share
 * what is known of the output. */
static void test_rotation_after_a_torn_line(void **state)
{
    char *path = temp_path("log"), *moved = temp_path("log.1"), *error;
    struct log_sink a, b;

    (void)state;
    assert_true(log_sink_open(&a, path, &error) && log_sink_open(&b, path, &error));
    log_sink_pair(&a, &b);
    assert_int_equal(write(a.fd, "one\ntw", 6), 6);
    a.torn = b.torn = true; /* as after a full disk */
    assert_int_equal(rename(path, moved), 0);
    assert_true(log_sink_reopen(&b, &error));
    log_sink_write(&b, SLICE("three\n"));
    log_sink_flush(&b);
    expect_file(path, "three\n");
    assert_int_equal(rename(moved, path), 0);
    rotate(&a, &b);
    log_sink_write(&b, SLICE("four\n"));
    log_sink_flush(&b);
    log_sink_write(&a, SLICE("five\n"));
    log_sink_close(&a);
    log_sink_close(&b);
    expect_file(path, "one\ntw\nfour\nfive\n");
    assert_int_equal(unlink(path), 0);
    mem_free(path);
    mem_free(moved);
}

/* Opened by the shell with `>`: without O_APPEND each would write over the other. */
static void test_pair_in_one_file(void **state)
{
    char *path = temp_path("both"), *error;
    int saved = dup(STDOUT_FILENO), fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    struct log_sink a, b;

    (void)state;
    assert_int_equal(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
    assert_true(log_sink_open(&a, "stdout", &error) && log_sink_open(&b, path, &error));
    log_sink_pair(&a, &b);
    for (int i = 0; i < 2; i++) {
        log_sink_write(&a, SLICE("one\n"));
        log_sink_flush(&a);
        log_sink_write(&b, SLICE("two\n"));
        log_sink_flush(&b);
    }
    log_sink_close(&a);
    log_sink_close(&b);
    assert_int_equal(dup2(saved, STDOUT_FILENO), STDOUT_FILENO);
    expect_file(path, "one\ntwo\none\ntwo\n");
    assert_int_equal(close(fd) + close(saved) + unlink(path), 0);
    mem_free(path);
}

/* A reader that is behind gets the rest while the sink is closed. */
static void test_close_waits_for_the_reader(void **state)
{
    const int n_lines = 3000;
    struct log_sink s;
    int reader, status;
    pid_t child;

    (void)state;
    open_pipe_sink(&s, &reader);
    child = fork();
    if (child == 0) {
        char bytes[NUMBERED_BYTES];
        size_t got = 0;

        log_sink_close(&s);
        for (ssize_t n; (n = read(reader, bytes, sizeof(bytes))) > 0;) /* slower than anybody writes */
            got += (size_t)n;
        _exit(got == (size_t)n_lines * NUMBERED_BYTES ? 0 : 1);
    }
    write_numbered(&s, 0, n_lines);
    log_sink_close(&s);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    (void)close(reader);
}

/* Nobody takes the rest: the end comes all the same. */
static void test_close_with_a_stuck_reader(void **state)
{
    struct log_sink s;
    int reader;

    (void)state;
    (void)alarm(60);
    open_pipe_sink(&s, &reader);
    write_numbered(&s, 0, 1000);
    /* The pipe has 64 KiB; the line that did not fit as a whole is lost as well. */
    log_sink_finish(&s);
    assert_int_equal(s.dropped, 1000 - 65536 / NUMBERED_BYTES);
    assert_int_equal(s.pending.len, 0);
    log_sink_close(&s);
    (void)alarm(0);
    (void)close(reader);
}

static void full_pipe(void (*open_sink)(struct log_sink *, int *))
{
    const int n_lines = 30000; /* more than pipe and buffer hold */
    struct log_sink s;
    int reader;

    (void)alarm(60); /* a write that blocks ends the test */
    open_sink(&s, &reader);
    write_numbered(&s, 0, n_lines);
    log_sink_flush(&s);
    log_sink_flush(&s);
    assert_true(s.dropped > 0);
    assert_true(s.pending.len <= LOG_SINK_BUFFER_BYTES);
    assert_int_equal(read_lines(&s, reader), n_lines - (int)s.dropped);
    write_numbered(&s, n_lines, n_lines + 10); /* it has recovered */
    log_sink_flush(&s);
    assert_int_equal(read_lines(&s, reader), 10);
    (void)alarm(0);
    log_sink_close(&s);
    (void)close(reader);
}

static void test_full_pipe(void **state)
{
    (void)state;
    full_pipe(open_pipe_sink);
    full_pipe(open_blocking_sink);
}

static void test_closed_pipe(void **state)
{
    struct log_sink s;
    int reader;

    (void)state;
    open_pipe_sink(&s, &reader);
    (void)close(reader);
    write_numbered(&s, 0, 3);
    assert_int_equal(s.dropped, 0);
    log_sink_flush(&s);
    log_sink_flush(&s);
    assert_int_equal(s.dropped, 3);
    assert_int_equal(s.pending.len, 0);
    write_numbered(&s, 3, 5);
    log_sink_flush(&s);
    assert_int_equal(s.dropped, 5);
    log_sink_close(&s);
}

/* stdout as a pipe: the sink must not make our parent's end non-blocking. */
static void test_stdout_is_left_as_it_is(void **state)
{
    struct log_sink s;
    char *error;
    int fds[2], saved = dup(STDOUT_FILENO);

    (void)state;
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(dup2(fds[1], STDOUT_FILENO), STDOUT_FILENO);
    assert_true(log_sink_open(&s, "stdout", &error));
    write_numbered(&s, 0, 3);
    log_sink_flush(&s);
    assert_int_equal(fcntl(STDOUT_FILENO, F_GETFL) & O_NONBLOCK, 0);
    assert_int_equal(read_lines(&s, fds[0]), 3);
    log_sink_close(&s);
    assert_true(fcntl(STDOUT_FILENO, F_GETFD) >= 0); /* still open */
    assert_int_equal(dup2(saved, STDOUT_FILENO), STDOUT_FILENO);
    (void)close(saved);
    (void)close(fds[0]);
    (void)close(fds[1]);
}

static void test_file(void **state)
{
    char *path = temp_path("access.log"), *moved = temp_path("access.log.1"), *error;
    struct log_sink s;
    struct stat st;
    mode_t mask = umask(0);

    (void)state;
    assert_true(log_sink_open(&s, path, &error));
    (void)umask(mask);
    assert_false(s.may_block);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0644);
    log_sink_write(&s, SLICE("one\n"));
    expect_file(path, ""); /* gathered */
    log_sink_flush(&s);
    expect_file(path, "one\n");
    assert_int_equal(rename(path, moved), 0);
    log_sink_write(&s, SLICE("two\n"));
    assert_true(log_sink_reopen(&s, &error));
    log_sink_write(&s, SLICE("three\n"));
    log_sink_close(&s);
    expect_file(moved, "one\ntwo\n");
    expect_file(path, "three\n");
    assert_true(log_sink_open(&s, path, &error));
    log_sink_write(&s, SLICE("four\n"));
    log_sink_close(&s); /* flushes */
    expect_file(path, "three\nfour\n");
    assert_int_equal(unlink(path) + unlink(moved), 0);
    mem_free(path);
    mem_free(moved);
}

/* stdout sent to a file: the descriptor is used as it is, and is not ours to close. */
static void test_stdout_is_a_file(void **state)
{
    char *path = temp_path("stdout"), *error;
    int saved = dup(STDOUT_FILENO), fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    struct log_sink s;

    (void)state;
    assert_int_equal(dup2(fd, STDOUT_FILENO), STDOUT_FILENO);
    assert_true(log_sink_open(&s, "stdout", &error));
    log_sink_write(&s, SLICE("one\n"));
    assert_true(log_sink_reopen(&s, &error)); /* nothing to open anew */
    log_sink_flush(&s);
    assert_int_equal(truncate(path, 0), 0); /* a rotation that copies: no hole is left before the next line */
    log_sink_write(&s, SLICE("two\n"));
    log_sink_close(&s);
    assert_int_equal(write(STDOUT_FILENO, "three\n", 6), 6);
    assert_int_equal(dup2(saved, STDOUT_FILENO), STDOUT_FILENO);
    expect_file(path, "two\nthree\n");
    assert_int_equal(close(fd) + close(saved) + unlink(path), 0);
    mem_free(path);
}

static void test_reopen_fails(void **state)
{
    char *dir = temp_path("sub"), *path = temp_path("sub/log"), *moved = temp_path("gone"),
         *kept = temp_path("gone/log");
    struct log_sink s;
    char *error;

    (void)state;
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_true(log_sink_open(&s, path, &error));
    assert_int_equal(rename(dir, moved), 0);
    log_sink_write(&s, SLICE("one\n"));
    assert_false(log_sink_reopen(&s, &error));
    assert_non_null(strstr(error, path));
    mem_free(error);
    log_sink_write(&s, SLICE("two\n"));
    log_sink_close(&s);
    expect_file(kept, "one\ntwo\n");
    assert_int_equal(unlink(kept) + rmdir(moved), 0);
    mem_free(dir);
    mem_free(path);
    mem_free(moved);
    mem_free(kept);
}

static void test_cannot_open(void **state)
{
    char *path = temp_path("none/log"), *fifo = temp_path("fifo"), *error = NULL;
    struct log_sink s;

    (void)state;
    assert_false(log_sink_open(&s, path, &error));
    assert_non_null(strstr(error, path));
    assert_non_null(strstr(error, strerror(ENOENT)));
    mem_free(error);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    (void)alarm(60);
    assert_false(log_sink_open(&s, fifo, &error)); /* nobody reads; it must not wait */
    (void)alarm(0);
    mem_free(error);
    assert_int_equal(unlink(fifo), 0);
    mem_free(path);
    mem_free(fifo);
}

/* A full disk in the middle of a line, played by a file size limit: what follows starts on a line of its own.
 */
static void test_broken_in_mid_line(void **state)
{
    char *path = temp_path("full"), *error;
    struct rlimit old, small;
    struct log_sink s;

    (void)state;
    assert_true(log_sink_open(&s, path, &error));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = (struct rlimit){6, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    log_sink_write(&s, SLICE("one\n"));
    log_sink_write(&s, SLICE("two\n"));
    log_sink_write(&s, SLICE("three\n"));
    for (int i = 0; i < 3; i++) { /* nothing is left to be tried again, and lost again */
        log_sink_flush(&s);
        assert_int_equal(s.dropped, 2);
        assert_int_equal(s.pending.len, 0);
    }
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    log_sink_write(&s, SLICE("four\n"));
    log_sink_flush(&s);
    log_sink_close(&s);
    expect_file(path, "one\ntw\nfour\n");
    assert_int_equal(unlink(path), 0);
    mem_free(path);
}

static int set_up(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN);
    return mkdtemp(temp_dir) == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    return rmdir(temp_dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_pipe),
        cmocka_unit_test(test_shared_pipe_is_given_up),
        cmocka_unit_test(test_pair_parts_at_a_rotation),
        cmocka_unit_test(test_rotation_ends_the_waiting),
        cmocka_unit_test(test_rotation_after_a_torn_line),
        cmocka_unit_test(test_pair_in_one_file),
        cmocka_unit_test(test_close_waits_for_the_reader),
        cmocka_unit_test(test_close_with_a_stuck_reader),
        cmocka_unit_test(test_full_pipe),
        cmocka_unit_test(test_closed_pipe),
        cmocka_unit_test(test_stdout_is_left_as_it_is),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_stdout_is_a_file),
        cmocka_unit_test(test_reopen_fails),
        cmocka_unit_test(test_cannot_open),
        cmocka_unit_test(test_broken_in_mid_line),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
