/* Masks: why each pixel is empty, judged by its value; and pixels with the fill where they are empty.
 *
 * reprojection/read/masks.py holds the same in numpy, with the same values.
 */
#include "common.h"

enum { RUNS = 8, PIXELS = 4096 };

/* A range of values of which a table says the same, other than 0. */
struct run { uint16_t first, width; uint8_t said; };

/* List the runs of a table; returns RUNS + 1 if there are more than RUNS. */
static int list_runs(const uint8_t *table, int values, struct run *runs)
{
    int count = 0;
    for (int start = 0, stop; start < values; start = stop) {
        for (stop = start + 1; stop < values && table[stop] == table[start]; stop++) {}
        if (!table[start])
            continue;
        if (count == RUNS)
            return RUNS + 1;
        runs[count].first = (uint16_t)start;
        runs[count].width = (uint16_t)(stop - start - 1);
        runs[count++].said = table[start];
    }
    return count;
}

/* Ranges are compared in vectors, which is faster than a table if they are few. */
#define LOOK_UP(NAME, TYPE)                                                                        \
    CLONES static void NAME(const TYPE *restrict values, int64_t count,                            \
                            const uint8_t *restrict table, const struct run *runs, int listed,     \
                            uint8_t *restrict out)                                                 \
    {                                                                                              \
        if (listed > RUNS) {                                                                       \
            for (int64_t i = 0; i < count; i++)                                                    \
                out[i] = table[values[i]];                                                         \
            return;                                                                                \
        }                                                                                          \
        for (int64_t start = 0; start < count; start += PIXELS) {                                  \
            int64_t stop = start + PIXELS < count ? start + PIXELS : count;                        \
            memset(out + start, 0, (size_t)(stop - start));                                        \
            for (int r = 0; r < listed; r++) {                                                     \
                TYPE first = (TYPE)runs[r].first, width = (TYPE)runs[r].width;                     \
                uint8_t said = runs[r].said;                                                       \
                for (int64_t i = start; i < stop; i++)                                             \
                    out[i] |= (TYPE)(values[i] - first) <= width ? said : 0;                       \
            }                                                                                      \
        }                                                                                          \
    }

LOOK_UP(look_up_bytes, uint8_t)
LOOK_UP(look_up_shorts, uint16_t)

/* out[i] = table[values[i]]; values have `size` bytes, 1 or 2, and the table an entry for each such
 * value. Returns -1 for another size. */
EXPORT int mask_look_up(int size, const void *values, int64_t count, const uint8_t *table,
                        uint8_t *out)
{
    struct run runs[RUNS];
    if (size != 1 && size != 2)
        return -1;
    int listed = list_runs(table, size == 1 ? 1 << 8 : 1 << 16, runs);
    if (size == 1)
        look_up_bytes(values, count, table, runs, listed, out);
    else
        look_up_shorts(values, count, table, runs, listed, out);
    return 0;
}

/* Where `why` is 0, set it to `also`. */
CLONES EXPORT void mask_join(const uint8_t *restrict also, int64_t count, uint8_t *restrict why)
{
    for (int64_t i = 0; i < count; i++)
        why[i] |= also[i] & (uint8_t)-(why[i] == 0);
}

#define FILL(NAME, TYPE)                                                                           \
    CLONES static void NAME(const TYPE *restrict in, int64_t count, const uint8_t *restrict why,   \
                            uint8_t wanted, TYPE fill, TYPE *restrict out)                         \
    {                                                                                              \
        for (int64_t i = 0; i < count; i++) {                                                      \
            TYPE kept = (TYPE)-(TYPE)(why[i] == wanted);                                           \
            out[i] = (TYPE)((in[i] & kept) | (fill & (TYPE)~kept));                                \
        }                                                                                          \
    }

FILL(fill_1, uint8_t)
FILL(fill_2, uint16_t)
FILL(fill_4, uint32_t)
FILL(fill_8, uint64_t)

/* Copy pixels of `size` bytes, with `fill` (one pixel) where `why` is not `wanted`. Returns -1 for
 * another size than 1, 2, 4 or 8. */
EXPORT int mask_fill(int size, const void *in, int64_t count, const uint8_t *why, int wanted,
                     const void *fill, void *out)
{
    switch (size) {
    case 1: fill_1(in, count, why, (uint8_t)wanted, *(const uint8_t *)fill, out); return 0;
    case 2: fill_2(in, count, why, (uint8_t)wanted, *(const uint16_t *)fill, out); return 0;
    case 4: fill_4(in, count, why, (uint8_t)wanted, *(const uint32_t *)fill, out); return 0;
    case 8: fill_8(in, count, why, (uint8_t)wanted, *(const uint64_t *)fill, out); return 0;
    default: return -1;
    }
}
