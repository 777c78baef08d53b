/* replay: a main for fuzz targets without libFuzzer. Runs the target once on every file of the given
 * directories and prints how many there were. */
#include <dirent.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The whole file in memory of exactly its size, so that the address sanitizer sees a read past the end. */
static uint8_t *read_file(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    long n = -1;
    uint8_t *data = NULL;

    if (f != NULL && fseek(f, 0, SEEK_END) == 0)
        n = ftell(f);
    if (n >= 0)
        data = malloc(n > 0 ? (size_t)n : 1);
    if (data != NULL && (fseek(f, 0, SEEK_SET) != 0 || fread(data, 1, (size_t)n, f) != (size_t)n)) {
        free(data);
        data = NULL;
    }
    if (f != NULL)
        (void)fclose(f);
    *size = n > 0 ? (size_t)n : 0;
    return data;
}

static int replay_file(const char *dir, const char *name)
{
    char path[4096];
    size_t size;
    uint8_t *data;

    (void)snprintf(path, sizeof(path), "%s/%s", dir, name);
    data = read_file(path, &size);
    if (data == NULL) {
        (void)fprintf(stderr, "cannot read %s\n", path);
        return -1;
    }
    (void)fprintf(stderr, "%s\n", path); /* the last line before a crash names its cause */
    (void)LLVMFuzzerTestOneInput(data, size);
    free(data);
    return 0;
}

/* How many files of the directory were run, or -1. */
static int replay_dir(const char *dir)
{
    DIR *d = opendir(dir);
    int n = 0;

    if (d == NULL) {
        (void)fprintf(stderr, "cannot read the directory %s\n", dir);
        return -1;
    }
    for (struct dirent *e; n >= 0 && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] != '.')
            n = replay_file(dir, e->d_name) == 0 ? n + 1 : -1;
    }
    (void)closedir(d);
    return n;
}

int main(int argc, char **argv)
{
    int total = 0;

    for (int i = 1; i < argc; i++) {
        int n = replay_dir(argv[i]);

        if (n == 0)
            (void)fprintf(stderr, "%s is empty\n", argv[i]);
        if (n <= 0)
            return 1;
        total += n;
    }
    printf("%d files\n", total);
    return 0;
}
