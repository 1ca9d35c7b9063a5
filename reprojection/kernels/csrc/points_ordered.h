/* Bilinear and cubic of neighbours in order, for one pixel type: a group whose pixels lie in one stretch of as many columns, some of them one
   further right, and in one source row, some in the next. Pixels are floats, fill is NaN. */
typedef struct {
    const float *at; /* of the first pixel the tap ahead of all others */
    int64_t pitch;
    INTS right, lower; /* which pixels are; all ones or zeros */
    REALS fx, fy;
} NAME(Ordered);

/* A box as floats, with T_LANES more columns; `pitch` numbers to a row. */
static void NAME(floats_of)(float *to, int64_t pitch, Box box, const NAME(View) * view, T fill) {
    const REALS none = (REALS){0} + NAN;
    for (int64_t r = 0; r < box.r1 - box.r0; r++)
        for (int64_t c = 0; c < pitch; c += T_LANES) {
            const T *p = view->data + r * view->stride + c;
            Shorts pixels = sizeof(T) == 2 ? loaded16(p) : loaded8(p, T_UNSIGNED);
            REALS v = __builtin_convertvector((INTS)widened_shorts(pixels, T_UNSIGNED), REALS);
            v = SELECT(NAME(valid16)(v, (W)fill), v, none);
            memcpy(to + r * pitch + c, &v, sizeof v);
        }
}

INLINE REALS NAME(ordered_row)(const NAME(Ordered) * group, int i, int j, int shifted) {
    REALS v, further;
    memcpy(&v, group->at + i * group->pitch + j, sizeof v);
    if (!shifted) return v;
    memcpy(&further, group->at + i * group->pitch + j + 1, sizeof further);
    return (REALS)chosen_reals((Lanes)group->right, (Reals)further, (Reals)v);
}

/* The taps of one column, `size` rows of them. */
INLINE void NAME(ordered_taps)(const NAME(Ordered) * group, int j, int size, int shifted,
                               REALS *t) {
    REALS upper = NAME(ordered_row)(group, 0, j, shifted);
#pragma GCC unroll 4
    for (int i = 0; i < size; i++) {
        const REALS under = NAME(ordered_row)(group, i + 1, j, shifted);
        t[i] = (REALS)chosen_reals((Lanes)group->lower, (Reals)under, (Reals)upper);
        upper = under;
    }
}

INLINE PIXELS NAME(ordered16)(int method, const NAME(Ordered) * group, T fill, int nearest_rule,
                              int shifted) {
    REALS inner[4], across[4], down[4], t[4], total = {0};
    MASK good, valid[4], whole = {0};
    if (method == BILINEAR) {
#pragma GCC unroll 2
        for (int j = 0; j < 2; j++) {
            NAME(ordered_taps)(group, j, 2, shifted, t);
            inner[j] = t[0];
            inner[2 + j] = t[1];
        }
    } else {
        NAME(keys16)(group->fx, across);
        NAME(keys16)(group->fy, down);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            NAME(ordered_taps)(group, j, 4, shifted, t);
            REALS column = down[0] * t[0];
#pragma GCC unroll 4
            for (int i = 1; i < 4; i++) column = column + down[i] * t[i];
            total = j ? total + across[j] * column : across[0] * column;
            if (j == 1 || j == 2) {
                inner[j - 1] = t[1];
                inner[j + 1] = t[2];
            }
        }
        whole = (MASK)(total == total);
        if (all_zero((Lanes)~whole)) return NAME(finish16)(total, whole, fill, 1);
    }
#pragma GCC unroll 4
    for (int n = 0; n < 4; n++) valid[n] = (MASK)(inner[n] == inner[n]);
    REALS plain = NAME(blend16)(inner, valid, group->fx, group->fy, nearest_rule, &good);
    return NAME(finish16)(method == CUBIC ? SELECT(whole, total, plain) : plain, good, fill,
                          method == CUBIC);
}

INLINE int64_t NAME(ordered_pitch)(Box box) {
    return (box.c1 - box.c0 + T_LANES + T_LANES - 1) / T_LANES * T_LANES;
}

/* Whether a box as floats is small enough to be kept close at hand. */
INLINE int NAME(ordered_room)(Box box) {
    return (box.r1 - box.r0) * NAME(ordered_pitch)(box) <= ORDERED_ROOM;
}

/* Sets where the pixels of a group lie, by places counted from `row` and `col`. */
INLINE int NAME(order)(NAME(Ordered) * group, const float *floats, FLOATS x, FLOATS y, int64_t row,
                       int64_t col) {
    const INTS whole_x = __builtin_convertvector(x, INTS), whole_y = __builtin_convertvector(y, INTS);
    group->fx = x - __builtin_convertvector(whole_x, REALS);
    group->fy = y - __builtin_convertvector(whole_y, REALS);
    INTS numbers;
    memcpy(&numbers, LANE_NUMBERS, sizeof numbers);
    const INTS along = whole_x - numbers;
    const int32_t left = along[0] < along[T_LANES - 1] ? along[0] : along[T_LANES - 1];
    const int32_t top =
        whole_y[0] < whole_y[T_LANES - 1] ? whole_y[0] : whole_y[T_LANES - 1];
    group->right = left - along;
    group->lower = top - whole_y;
    group->at = floats + (row + top) * group->pitch + col + left;
    if (!all_zero((Lanes)(((group->right + 1) | (group->lower + 1)) & ~1))) return UNORDERED;
    return all_zero((Lanes)group->right) ? IN_ORDER : SHIFTED;
}

/* A group that is not in order, the k-th of its segment. */
static __attribute__((noinline)) PIXELS NAME(unordered16)(int method, NAME(Segment) at, int k, Box box,
                                                          const NAME(View) * view, T fill,
                                                          int nearest_rule) {
    NAME(Groups) groups;
    NAME(locate)(&groups, 0, at, box, 0.5f, 0, 1);
    return method == BILINEAR
               ? NAME(bilinear16)(view->data, view->stride, &groups, k, fill, nearest_rule)
               : NAME(cubic16)(view->data, view->stride, &groups, k, fill, nearest_rule);
}

/* A part of a block whose first segment may be shifted, one band. */
INLINE void NAME(ordered_rows)(int method, const Job *job, const Segments *segments, Box box,
                               const NAME(View) * view, int64_t band, Part part) {
    float floats[ORDERED_ROOM + STRETCH];
    const T fill = *(const T *)job->fill;
    const int nearest_rule = (int)job->nearest_rule, before = method == CUBIC;
    NAME(Ordered) group = {.pitch = NAME(ordered_pitch)(box)};
    NAME(floats_of)(floats, group.pitch, box, view, fill);
    for (int i = part.first; i < part.last; i++) {
        T *out = (T *)job->out[band] + (part.row0 + i) * job->out_stride + part.col0;
        for (int s = part.left / SEGMENT; s * SEGMENT < part.right; s++) {
            const int n = i * SEGMENTS + s;
            const NAME(Segment) at = {{segments->value[0][n], segments->value[1][n]},
                                      {segments->slope[0][n], segments->slope[1][n]},
                                      {segments->bend[0][n], segments->bend[1][n]}};
            const double base[2] = {floor(at.value[0]) - BIAS, floor(at.value[1]) - BIAS};
            const float local[2] = {(float)(at.value[0] - base[0]), (float)(at.value[1] - base[1])};
            const int64_t row = (int64_t)base[1] - box.r0 - before;
            const int64_t col = (int64_t)base[0] - box.c0 - before;
            for (int k = 0; k < SEGMENT / T_LANES; k++) {
                FLOATS u;
                memcpy(&u, PLACES + k * T_LANES, sizeof u);
                const FLOATS x = local[0] + u * (at.slope[0] + u * at.bend[0]) - 0.5f;
                const FLOATS y = local[1] + u * (at.slope[1] + u * at.bend[1]) - 0.5f;
                PIXELS made;
                const int order = NAME(order)(&group, floats, x, y, row, col);
                if (order == IN_ORDER)
                    made = NAME(ordered16)(method, &group, fill, nearest_rule, 0);
                else if (order == SHIFTED)
                    made = NAME(ordered16)(method, &group, fill, nearest_rule, 1);
                else
                    made = NAME(unordered16)(method, at, k, box, view, fill, nearest_rule);
                const int from = s * SEGMENT + k * T_LANES;
                if (from >= part.left && from + T_LANES <= part.right)
                    memcpy(out + from, &made, sizeof made);
                else
                    for (int m = 0; m < T_LANES; m++)
                        if (from + m >= part.left && from + m < part.right) out[from + m] = made[m];
            }
        }
    }
}
