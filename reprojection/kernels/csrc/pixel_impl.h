/* One pixel type's scalar parts: reading pixels, weighing them, writing the result. Included once
   per type, with the macros of each_type.h. */

#if T_INTEGER
#define IS_VALID(v, fill) ((v) != (fill))
#else
#define IS_VALID(v, fill) ((v) != (fill) && (v) == (v))
#endif

INLINE void NAME(fill_run)(T *out, int64_t count, T fill) {
    typedef T Run __attribute__((vector_size(16)));
    const Run run = (Run){0} + fill;
    int64_t k = 0;
    for (; k + 16 / (int64_t)sizeof(T) <= count; k += 16 / (int64_t)sizeof(T))
        memcpy(out + k, &run, sizeof run);
    for (; k < count; k++) out[k] = fill;
}

/* Pixels of a box, wherever they are kept: `room` elements follow `data`. */
typedef struct {
    const T *data;
    int64_t stride, room;
} NAME(View);

/* The tile that holds a whole box, or the box copied out of the tiles with fill between them. 1;
   0 where there is nothing but fill; -1 without memory. */
static int NAME(view)(const Job *job, int64_t band, Box box, Scratch *scratch, NAME(View) * view) {
    const Tile *tiles = job->tile + band * job->tiles;
    int touched = 0;
    view->data = NULL;
    for (int64_t n = 0; n < job->tiles; n++) {
        const Tile *t = tiles + n;
        if (box.r0 >= t->row && box.r1 <= t->row + t->height && box.c0 >= t->col &&
            box.c1 <= t->col + t->width) {
            int64_t skip = (box.r0 - t->row) * t->stride + (box.c0 - t->col);
            view->data = (const T *)t->data + skip;
            view->stride = t->stride;
            view->room = (t->height - 1) * t->stride + t->width - skip;
            return 1;
        }
        touched |= box.r0 < t->row + t->height && box.r1 > t->row &&
                   box.c0 < t->col + t->width && box.c1 > t->col;
    }
    if (!touched) return 0;
    int64_t height = box.r1 - box.r0, width = box.c1 - box.c0;
    view->stride = width;
    view->room = height * width + VIEW_SLACK;
    T *copy = scratch_of(scratch, (size_t)view->room * sizeof(T));
    if (!copy) return -1;
    view->data = copy;
    T fill = *(const T *)job->fill;
    NAME(fill_run)(copy, view->room, fill);
    for (int64_t n = 0; n < job->tiles; n++) {
        const Tile *t = tiles + n;
        int64_t r0 = greater(box.r0, t->row), r1 = lesser(box.r1, t->row + t->height);
        int64_t c0 = greater(box.c0, t->col), c1 = lesser(box.c1, t->col + t->width);
        if (c0 >= c1) continue;
        for (int64_t r = r0; r < r1; r++)
            memcpy(copy + (r - box.r0) * width + (c0 - box.c0),
                   (const T *)t->data + (r - t->row) * t->stride + (c0 - t->col),
                   (size_t)(c1 - c0) * sizeof(T));
    }
    return 1;
}

/* One pixel, wherever it lies; fill outside the tiles. */
INLINE T NAME(fetch)(const Job *job, int64_t band, int64_t row, int64_t col, int64_t *hint) {
    const Tile *tiles = job->tile + band * job->tiles;
    for (int64_t k = 0; k < job->tiles; k++) {
        int64_t n = (*hint + k) % job->tiles;
        const Tile *t = tiles + n;
        if (row >= t->row && row < t->row + t->height && col >= t->col &&
            col < t->col + t->width) {
            *hint = n;
            return ((const T *)t->data)[(row - t->row) * t->stride + (col - t->col)];
        }
    }
    return *(const T *)job->fill;
}

/* A weighed value as a pixel: rounded half to even, in range, never by chance the fill. */
INLINE T NAME(finish)(W value, int good, T fill) {
#if T_INTEGER
    const W magic = sizeof(W) == 4 ? (W)12582912.0 : (W)6755399441055744.0;
    value = good ? value : (W)0;
    value = value < (W)T_MIN ? (W)T_MIN : value;
    value = value > (W)T_MAX ? (W)T_MAX : value;
    W rounded = (value + magic) - magic;
    T pixel = (T)rounded;
    T aside = fill == (T)T_MIN ? (T)(fill + 1) : (T)(fill - 1);
#else
    T pixel = good ? (T)value : (T)0;
    T aside = fill == (T)0 ? NAME(next)((T)0, (T)1) : NAME(next)(fill, (T)0);
#endif
    pixel = pixel == fill ? aside : pixel;
    return good ? pixel : fill;
}

INLINE void NAME(keys)(W t, W *w0, W *w1, W *w2, W *w3) {
    const W half = (W)0.5, one = 1, two = 2, three = 3, four = 4, five = 5;
    *w0 = half * (t * ((two - t) * t - one));
    *w1 = half * ((three * t - five) * (t * t) + two);
    *w2 = half * (t * ((four - three * t) * t + one));
    *w3 = half * ((t - one) * (t * t));
}

/* Bilinear of four taps: GDAL's rule, or (nearest_rule 0) any valid tap will do. */
INLINE W NAME(blend)(T t00, T t01, T t10, T t11, W fx, W fy, T fill, int nearest_rule, int *good) {
    int m00 = IS_VALID(t00, fill), m01 = IS_VALID(t01, fill);
    int m10 = IS_VALID(t10, fill), m11 = IS_VALID(t11, fill);
    W gx = (W)1 - fx, gy = (W)1 - fy;
    W v00 = m00 ? (W)t00 : (W)0, v01 = m01 ? (W)t01 : (W)0;
    W v10 = m10 ? (W)t10 : (W)0, v11 = m11 ? (W)t11 : (W)0;
    W left = gy * v00 + fy * v10, right = gy * v01 + fy * v11;
    W left_weight = gy * (W)m00 + fy * (W)m10, right_weight = gy * (W)m01 + fy * (W)m11;
    W total = gx * left + fx * right;
    W weight = gx * left_weight + fx * right_weight;
    int upper = fx >= (W)0.5 ? m01 : m00, lower = fx >= (W)0.5 ? m11 : m10;
    int near = fy >= (W)0.5 ? lower : upper;
    *good = nearest_rule ? near : weight > (W)0;
    return total / weight;
}

/* Cubic of 16 taps by rows, or the bilinear where one of them is fill. */
INLINE W NAME(curve)(const T *taps, W fx, W fy, T fill, W plain) {
    W x0, x1, x2, x3, y0, y1, y2, y3;
    NAME(keys)(fx, &x0, &x1, &x2, &x3);
    NAME(keys)(fy, &y0, &y1, &y2, &y3);
    int whole = 1;
    W columns[4];
    for (int j = 0; j < 4; j++) {
        for (int i = 0; i < 4; i++) whole &= IS_VALID(taps[4 * i + j], fill);
        W sum = y0 * (W)taps[j];
        sum = sum + y1 * (W)taps[4 + j];
        sum = sum + y2 * (W)taps[8 + j];
        sum = sum + y3 * (W)taps[12 + j];
        columns[j] = sum;
    }
    W total = x0 * columns[0];
    total = total + x1 * columns[1];
    total = total + x2 * columns[2];
    total = total + x3 * columns[3];
    return whole ? total : plain;
}

/* One target pixel at a float64 place, tap by tap. */
static T NAME(single)(const Job *job, int64_t method, int64_t band, double x, double y,
                      int64_t *hint) {
    T fill = *(const T *)job->fill;
    if (x != x || y != y || fabs(x) > 1e15 || fabs(y) > 1e15) return fill;
    if (method == NEAREST)
        return NAME(fetch)(job, band, (int64_t)floor(y), (int64_t)floor(x), hint);
    double px = x - 0.5, py = y - 0.5;
    double left = floor(px), top = floor(py);
    W fx = (W)(px - left), fy = (W)(py - top);
    int64_t c = (int64_t)left, r = (int64_t)top;
    T taps[16];
    int reach = method == CUBIC;
    for (int i = -reach; i < 2 + reach; i++)
        for (int j = -reach; j < 2 + reach; j++)
            taps[4 * (i + 1) + j + 1] = NAME(fetch)(job, band, r + i, c + j, hint);
    int good;
    W value = NAME(blend)(taps[5], taps[6], taps[9], taps[10], fx, fy, fill,
                          (int)job->nearest_rule, &good);
    if (method == CUBIC && good) value = NAME(curve)(taps, fx, fy, fill, value);
    return NAME(finish)(value, good, fill);
}

/* `finish` of a value weighed in float64. */
INLINE T NAME(finish_real)(double value, T fill) {
#if T_INTEGER
    const double magic = 6755399441055744.0;
    value = value < (double)T_MIN ? (double)T_MIN : value;
    value = value > (double)T_MAX ? (double)T_MAX : value;
    T pixel = (T)((value + magic) - magic);
    T aside = fill == (T)T_MIN ? (T)(fill + 1) : (T)(fill - 1);
#else
    T pixel = (T)value;
    T aside = fill == (T)0 ? NAME(next)((T)0, (T)1) : NAME(next)(fill, (T)0);
#endif
    return pixel == fill ? aside : pixel;
}
