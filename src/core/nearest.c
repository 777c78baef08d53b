/* nearest: edit distance (insert, delete, replace) between short names. It owns the measure; who the
 * candidates are is the caller's. */
#include "nearest.h"

#include <ctype.h>

static struct slice shorten(struct slice s)
{
    return (struct slice){s.p, s.n < NEAREST_NAME_MAX ? s.n : NEAREST_NAME_MAX};
}

static size_t least(size_t a, size_t b, size_t c)
{
    size_t ab = a < b ? a : b;

    return ab < c ? ab : c;
}

static bool same(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

/* One row of the usual table at a time: row[j] = edits from the first i bytes of a to the first j of b. */
static size_t edits(struct slice a, struct slice b)
{
    size_t row[NEAREST_NAME_MAX + 1];

    for (size_t j = 0; j <= b.n; j++)
        row[j] = j;
    for (size_t i = 0; i < a.n; i++) {
        size_t diagonal = row[0];

        row[0] = i + 1;
        for (size_t j = 0; j < b.n; j++) {
            size_t above = row[j + 1];

            row[j + 1] = least(above + 1, row[j] + 1, diagonal + (same(a.p[i], b.p[j]) ? 0 : 1));
            diagonal = above;
        }
    }
    return row[b.n];
}

void nearest_start(struct nearest *n, struct slice wanted)
{
    *n = (struct nearest){.wanted = shorten(wanted), .distance = SIZE_MAX};
}

void nearest_try(struct nearest *n, struct slice name)
{
    size_t distance;

    name = shorten(name);
    distance = edits(n->wanted, name);
    if (distance >= n->distance)
        return;
    n->distance = distance;
    memcpy(n->best, name.p, name.n);
    n->best[name.n] = '\0';
}
