/* Overviews: a raster at half its size, each pixel the mean of the up to four that have a value.
 *
 * reprojection/write/overviews.py holds the same in numpy, with the same values.
 */
#include "common.h"

#define RUN 32

/* A value is one that is neither `nodata` nor NaN; the mean of whole numbers is rounded half up, and
 * moved by one where it would equal nodata; other means are moved to the next number. */
#define HALVE(NAME, TYPE, IS_FLOAT, NEXT)                                                          \
    CLONES static void NAME(const TYPE *in, int64_t rows, int64_t cols, TYPE nodata, int known,   \
                            TYPE *out)                                                            \
    {                                                                                              \
        int64_t down = (rows + 1) / 2, across = (cols + 1) / 2;                                    \
        for (int64_t r = 0; r < down; r++) {                                                       \
            const TYPE *top = in + 2 * r * cols;                                                   \
            const TYPE *low = 2 * r + 1 < rows ? top + cols : NULL;                                \
            for (int64_t c = 0; c < across; c++) {                                                 \
                /* Most runs are of values alone, and their means are shifts. */                   \
                while (!(IS_FLOAT) && known && sizeof(TYPE) <= 2 && low &&                         \
                       2 * (c + RUN) <= cols) {                                                    \
                    const TYPE *a = top + 2 * c, *b = low + 2 * c;                                 \
                    int empty = 0;                                                                 \
                    for (int i = 0; i < 2 * RUN; i++)                                              \
                        empty |= (a[i] == nodata) | (b[i] == nodata);                              \
                    if (empty)                                                                     \
                        break;                                                                     \
                    int clash = 0;                                                                 \
                    for (int i = 0; i < RUN; i++) {                                                \
                        int sum = (int)a[2 * i] + (int)a[2 * i + 1] + (int)b[2 * i] +              \
                                  (int)b[2 * i + 1];                                               \
                        TYPE mean = (TYPE)((sum + 2) >> 2);                                        \
                        clash |= mean == nodata;                                                   \
                        out[r * across + c + i] = mean;                                            \
                    }                                                                              \
                    if (clash)                                                                     \
                        break;                                                                     \
                    c += RUN;                                                                      \
                }                                                                                  \
                if (c >= across)                                                                   \
                    break;                                                                         \
                int right = 2 * c + 1 < cols;                                                      \
                TYPE four[4] = {top[2 * c], right ? top[2 * c + 1] : nodata,                       \
                                low ? low[2 * c] : nodata, low && right ? low[2 * c + 1] : nodata}; \
                int there[4] = {1, right, low != NULL, low != NULL && right};                      \
                double sum = 0.0;                                                                  \
                int count = 0;                                                                     \
                for (int i = 0; i < 4; i++) {                                                      \
                    int use = there[i] & !(known & (four[i] == nodata)) & (four[i] == four[i]);    \
                    sum += use ? (double)four[i] : 0.0;                                            \
                    count += use;                                                                  \
                }                                                                                  \
                TYPE mean = nodata;                                                                \
                if (count) {                                                                       \
                    double exact = sum / count;                                                    \
                    mean = IS_FLOAT ? (TYPE)exact : (TYPE)floor(exact + 0.5);                      \
                    if (known && mean == nodata)                                                   \
                        mean = IS_FLOAT ? (TYPE)NEXT(nodata, nodata == 0 ? 1 : 0)                  \
                                        : (TYPE)(mean + (exact < (double)mean ? -1 : 1));          \
                }                                                                                  \
                out[r * across + c] = mean;                                                        \
            }                                                                                      \
        }                                                                                          \
    }

HALVE(halve_int8, int8_t, 0, nextafter)
HALVE(halve_uint8, uint8_t, 0, nextafter)
HALVE(halve_int16, int16_t, 0, nextafter)
HALVE(halve_uint16, uint16_t, 0, nextafter)
HALVE(halve_int32, int32_t, 0, nextafter)
HALVE(halve_uint32, uint32_t, 0, nextafter)
HALVE(halve_float32, float, 1, nextafterf)
HALVE(halve_float64, double, 1, nextafter)

/* `type` numbers int8, uint8, int16, uint16, int32, uint32, float32, float64 from 0; `nodata` points
 * to one value of that type. Returns -1 for another type. */
EXPORT int halve(int type, const void *in, int64_t rows, int64_t cols, const void *nodata, int known,
                 void *out)
{
    switch (type) {
    case 0: halve_int8(in, rows, cols, *(const int8_t *)nodata, known, out); return 0;
    case 1: halve_uint8(in, rows, cols, *(const uint8_t *)nodata, known, out); return 0;
    case 2: halve_int16(in, rows, cols, *(const int16_t *)nodata, known, out); return 0;
    case 3: halve_uint16(in, rows, cols, *(const uint16_t *)nodata, known, out); return 0;
    case 4: halve_int32(in, rows, cols, *(const int32_t *)nodata, known, out); return 0;
    case 5: halve_uint32(in, rows, cols, *(const uint32_t *)nodata, known, out); return 0;
    case 6: halve_float32(in, rows, cols, *(const float *)nodata, known, out); return 0;
    case 7: halve_float64(in, rows, cols, *(const double *)nodata, known, out); return 0;
    default: return -1;
    }
}
