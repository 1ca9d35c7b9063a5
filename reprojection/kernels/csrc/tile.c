/* One tile of a TIFF: planes interleaved by pixel, and each sample as its difference from the one to
 * its left (TIFF 6.0, section 14). What lies beyond the raster repeats its edge. */
#include "common.h"

#define INTERLEAVE(NAME, TYPE)                                                                     \
    CLONES static void NAME(const TYPE *plane, int64_t stride, int64_t rows, int64_t cols,         \
                            int64_t side, int64_t band, int64_t bands, int predict, TYPE *out)     \
    {                                                                                              \
        for (int64_t r = 0; r < side; r++) {                                                       \
            const TYPE *from = plane + (r < rows ? r : rows - 1) * stride;                         \
            TYPE *to = out + r * side * bands + band;                                              \
            TYPE edge = from[cols - 1];                                                            \
            if (!predict) {                                                                        \
                for (int64_t c = 0; c < cols; c++)                                                 \
                    to[c * bands] = from[c];                                                       \
            } else if (bands == 1) {                                                               \
                to[0] = from[0];                                                                   \
                for (int64_t c = 1; c < cols; c++)                                                 \
                    to[c] = (TYPE)(from[c] - from[c - 1]);                                         \
            } else {                                                                               \
                to[0] = from[0];                                                                   \
                for (int64_t c = 1; c < cols; c++)                                                 \
                    to[c * bands] = (TYPE)(from[c] - from[c - 1]);                                 \
            }                                                                                      \
            for (int64_t c = cols; c < side; c++)                                                  \
                to[c * bands] = predict ? 0 : edge;                                                \
        }                                                                                          \
    }

INTERLEAVE(interleave8, uint8_t)
INTERLEAVE(interleave16, uint16_t)
INTERLEAVE(interleave32, uint32_t)
INTERLEAVE(interleave64, uint64_t)

/* Put one plane's part of a tile, `rows` x `cols` samples of `size` bytes, `stride` samples from row
 * to row, into its band of a tile of `side` x `side` pixels. Returns -1 for another size. */
EXPORT int interleave_band(int size, const void *plane, int64_t stride, int64_t rows, int64_t cols,
                           int64_t side, int64_t band, int64_t bands, int predict, void *out)
{
    switch (size) {
    case 1: interleave8(plane, stride, rows, cols, side, band, bands, predict, out); return 0;
    case 2: interleave16(plane, stride, rows, cols, side, band, bands, predict, out); return 0;
    case 4: interleave32(plane, stride, rows, cols, side, band, bands, predict, out); return 0;
    case 8: interleave64(plane, stride, rows, cols, side, band, bands, predict, out); return 0;
    default: return -1;
    }
}
