/* Merge what one granule shows, target by target, into what granules before it showed.
 *
 * The rules are in reprojection/warp/merge.py, whose numpy version gives the same arrays.
 */
#include "common.h"

enum { FIRST, NADIR, LATEST };

typedef struct {
    const int32_t *seen; /* the footprint that each target sees, or -1 */
    int64_t targets;
    const void *values;
    const uint8_t *why;
    const float *zenith;
    uint8_t valid, code; /* numbers of reasons */
    int64_t rule, number;
    void *merged, *codes;
    float *best, *code_best;
    uint16_t *counts;
    uint8_t *coded;
    uint16_t *sources;
    uint8_t *reasons;
} Merge;

static inline int wins(int64_t rule, int earlier, float zenith, float best)
{
    return rule == LATEST || (rule == NADIR ? zenith <= best : !earlier);
}

static inline void put(void *to, int64_t i, const void *from, int64_t k, size_t size)
{
    memcpy((char *)to + i * (int64_t)size, (const char *)from + k * (int64_t)size, size);
}

static inline void merge(const Merge *m, size_t size)
{
    for (int64_t i = 0; i < m->targets; i++) {
        int64_t k = m->seen[i];
        if (k < 0)
            continue;
        uint8_t why = m->why[k];
        float zenith = isnan(m->zenith[k]) ? INFINITY : m->zenith[k];
        if (why > m->reasons[i])
            m->reasons[i] = why;
        if (why == m->valid) {
            int won = wins(m->rule, m->counts[i] > 0, zenith, m->best[i]);
            m->counts[i]++;
            if (won) {
                put(m->merged, i, m->values, k, size);
                m->best[i] = zenith;
                m->sources[i] = (uint16_t)m->number;
            }
        } else if (why == m->code) {
            int won = wins(m->rule, m->coded[i], zenith, m->code_best[i]);
            m->coded[i] = 1;
            if (won) {
                put(m->codes, i, m->values, k, size);
                m->code_best[i] = zenith;
            }
        }
    }
}

/* `size` is the bytes of a value: 1, 2, 4 or 8. */
EXPORT void sw_merge(const int32_t *seen, int64_t targets, const void *values, const uint8_t *why,
                     const float *zenith, int64_t size, int64_t valid, int64_t code, int64_t rule,
                     int64_t number, void *merged, void *codes, float *best, float *code_best,
                     uint16_t *counts, uint8_t *coded, uint16_t *sources, uint8_t *reasons)
{
    Merge m = {seen, targets, values, why, zenith, (uint8_t)valid, (uint8_t)code, rule, number,
               merged, codes, best, code_best, counts, coded, sources, reasons};
    switch (size) {
    case 1: merge(&m, 1); break;
    case 2: merge(&m, 2); break;
    case 4: merge(&m, 4); break;
    case 8: merge(&m, 8); break;
    }
}
