/* The places of a block's pixels by bicubics, in float64: a weighted sum of four rows of nodes, then
   of four columns, in this order on every CPU. */
#include "job.h"

typedef struct {
    const double *weights; /* [count][4] */
    const double *nodes;
    int64_t stride; /* numbers between rows of nodes */
} Bicubic;

/* `count` places of one row, of which `row` holds the four weights. */
CLONES static void row_places(double *restrict places, Bicubic by, const double *row, int count) {
    double c[4][2];
    for (int k = 0; k < 4; k++)
        for (int channel = 0; channel < 2; channel++) {
            const double *n = by.nodes + 2 * k + channel;
            double sum = row[0] * n[0];
            sum = sum + row[1] * n[by.stride];
            sum = sum + row[2] * n[2 * by.stride];
            sum = sum + row[3] * n[3 * by.stride];
            c[k][channel] = sum;
        }
    for (int j = 0; j < count; j++) {
        const double *v = by.weights + 4 * j;
        for (int channel = 0; channel < 2; channel++) {
            double sum = v[0] * c[0][channel];
            sum = sum + v[1] * c[1][channel];
            sum = sum + v[2] * c[2][channel];
            sum = sum + v[3] * c[3][channel];
            places[2 * j + channel] = sum;
        }
    }
}

void block_places(double *places, const Job *job, int64_t i, int64_t j, int edges, int first,
                  int last) {
    const int64_t block = i * job->across + j, stride = 2 * (job->across + 3);
    const int count = BLOCK + edges;
    const double *table = edges ? job->edge_weights : job->centre_weights;
    if (job->kinds[block] != FINE_BLOCK) {
        Bicubic by = {table, job->nodes + i * stride + 2 * j, stride};
        for (int r = first; r < last; r++)
            row_places(places + 2 * r * count, by, table + 4 * r, count);
        return;
    }
    table = edges ? job->fine_edge_weights : job->fine_centre_weights;
    const double *nodes = job->fine + job->fine_index[block] * (FINE_NODES * FINE_NODES * 2);
    for (int r = first; r < last; r++) {
        const int down = (int)lesser(r / FINE, PARTS - 1);
        for (int across = 0; across < PARTS; across++) {
            Bicubic by = {table, nodes + 2 * (down * FINE_NODES + across), 2 * FINE_NODES};
            row_places(places + 2 * (r * count + across * FINE), by,
                       table + 4 * (r - down * FINE), FINE + (edges && across == PARTS - 1));
        }
    }
}
