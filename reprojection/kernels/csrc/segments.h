/* The segments of a bicubic block, four at a time; compiled for the target set before this is
   included. */
#ifndef SWATHMILL_SEGMENTS_H
#define SWATHMILL_SEGMENTS_H

#include "vectors.h"

enum { QUADS = SEGMENTS / 4 };

/* Segments of rows [first, last) of a bicubic block from its 4 x 4 nodes, and a box that certainly
   holds every place of segments [left, right). */
static void block_segments(Segments *out, const Job *job, const double *nodes, int64_t node_stride,
                           int first, int last, Box *box, int left, int right) {
    Quad low[2][QUADS], high[2][QUADS], slopes[2][QUADS], bends[2][QUADS];
    for (int channel = 0; channel < 2; channel++)
        for (int q = 0; q < QUADS; q++) {
            low[channel][q] = (Quad){0} + 1e300;
            high[channel][q] = (Quad){0} - 1e300;
            slopes[channel][q] = bends[channel][q] = (Quad){0};
        }
    for (int i = first; i < last; i++) {
        const double *w = job->centre_weights + 4 * i;
        Quad column[2];
        for (int half = 0; half < 2; half++) {
            const double *n = nodes + 4 * half;
            column[half] = w[0] * quad_at(n);
            for (int k = 1; k < 4; k++)
                column[half] = column[half] + w[k] * quad_at(n + k * node_stride);
        }
        for (int channel = 0; channel < 2; channel++) {
            const double c[4] = {column[0][channel], column[0][channel + 2], column[1][channel],
                                 column[1][channel + 2]};
            for (int q = 0; q < QUADS; q++) {
                Quad part[3];
                for (int n = 0; n < 3; n++) {
                    const double *table = job->segment_weights + 4 * SEGMENTS * n + 4 * q;
                    part[n] = quad_at(table) * c[0];
                    for (int k = 1; k < 4; k++)
                        part[n] = part[n] + quad_at(table + SEGMENTS * k) * c[k];
                }
                QuadFloats slope = __builtin_convertvector(part[1], QuadFloats);
                QuadFloats bend = __builtin_convertvector(part[2], QuadFloats);
                int at = i * SEGMENTS + 4 * q;
                memcpy(out->value[channel] + at, part, sizeof(Quad));
                memcpy(out->slope[channel] + at, &slope, sizeof slope);
                memcpy(out->bend[channel] + at, &bend, sizeof bend);
                low[channel][q] = least4(part[0], low[channel][q]);
                high[channel][q] = most4(part[0], high[channel][q]);
                slopes[channel][q] = most4(absolute4(part[1]), slopes[channel][q]);
                bends[channel][q] = most4(absolute4(part[2]), bends[channel][q]);
            }
        }
    }
    for (int channel = 0; channel < 2; channel++)
        for (int q = 0; q < QUADS; q++) {
            Quad reach = 8.0 * slopes[channel][q] + 64.0 * bends[channel][q];
            low[channel][q] = low[channel][q] - reach;
            high[channel][q] = high[channel][q] + reach;
        }
    double lowest[2], highest[2];
    for (int channel = 0; channel < 2; channel++) {
        lowest[channel] = low[channel][left / 4][left % 4];
        highest[channel] = high[channel][left / 4][left % 4];
        for (int s = left + 1; s < right; s++) {
            lowest[channel] = fmin(lowest[channel], low[channel][s / 4][s % 4]);
            highest[channel] = fmax(highest[channel], high[channel][s / 4][s % 4]);
        }
    }
    *box = (Box){(int64_t)floor(lowest[1]) - 1, (int64_t)floor(highest[1]) + 2,
                 (int64_t)floor(lowest[0]) - 1, (int64_t)floor(highest[0]) + 2};
}

#endif
