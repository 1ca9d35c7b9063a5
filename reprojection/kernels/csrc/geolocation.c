/* Coarse geolocation brought onto finer pixels, scan by scan.

   The same sums in the same order as reprojection/read/interpolation.py, which is the reference: across
   the scan first, on its few coarse lines, then along. Scans near a pole go through 3-D vectors. */
#include "common.h"

/* glibc 2.35 gave hypot a second version, which differs from the first only in setting errno. By the
   first, the library also runs on older systems. */
#if defined(__GLIBC__) && defined(__x86_64__)
__asm__(".symver hypot, hypot@GLIBC_2.2.5");
#elif defined(__GLIBC__) && defined(__aarch64__)
__asm__(".symver hypot, hypot@GLIBC_2.17");
#endif

#define RADIANS (3.14159265358979323846 / 180.0)
#define DEGREES (180.0 / 3.14159265358979323846)

typedef double quad __attribute__((vector_size(32), aligned(8), may_alias));

struct axes {
    int64_t coarse_columns, columns, per, across_taps, along_taps;
    const int32_t *across_first;
    const double *across;
};

/* Python's modulo of a float by 360. */
static double turn(double value) {
    double rest = fmod(value, 360.0);
    return rest < 0.0 ? rest + 360.0 : rest;
}

static double wrap(double lon) {
    return lon >= 180.0 || lon < -180.0 ? turn(lon + 180.0) - 180.0 : lon;
}

/* (difference + 540) mod 360 - 180, without fmod in the usual case; both are exact there. */
static double unwrap(double lon, double reference) {
    double shifted = lon - reference + 540.0;
    if (shifted >= 360.0 && shifted < 720.0) return shifted - 360.0 - 180.0;
    return isnan(shifted) ? shifted : turn(shifted) - 180.0;
}

typedef int64_t mask __attribute__((vector_size(32)));

/* Two coarse lines of latitude and longitude side by side: a coarse column is one vector. Says
   whether all longitudes less the reference are plain, so that nothing is unknown or needs fmod. */
CLONES static int pack_pair(const double *lat, const double *lon, int64_t coarse, double reference,
                            double *packed) {
    int plain = 1;
    for (int64_t at = 0; at < coarse; at++) {
        double one = lon[at] - reference + 540.0, other = lon[coarse + at] - reference + 540.0;
        plain &= (one >= 360.0) & (one < 720.0) & (other >= 360.0) & (other < 720.0);
        packed[4 * at] = lat[at];
        packed[4 * at + 1] = lat[coarse + at];
        packed[4 * at + 2] = one - 360.0 - 180.0;
        packed[4 * at + 3] = other - 360.0 - 180.0;
    }
    return plain;
}

/* Two lines at once, four fine columns at a time. Says whether no line made from these two, up to
   one step beyond them, can leave [-180, 180) once the reference is added: 0 when unsure. */
CLONES static int across_pair(const double *packed, const struct axes *a, double reference,
                              double *out) {
    int64_t columns = a->columns, room = (columns + 3) & ~(int64_t)3;
    double slack = 2.0, high = 180.0 - slack - reference, low = -180.0 + slack - reference;
    mask safe = {-1, -1, -1, -1};
    for (int64_t base = 0; base < room; base += 4) {
        quad sum[4];
        for (int64_t lane = 0; lane < 4; lane++) {
            int64_t column = base + lane < columns ? base + lane : columns - 1;
            const double *from = packed + 4 * (int64_t)a->across_first[column];
            const double *weight = a->across + 4 * column;
            quad total = *(const quad *)from * weight[0];
            total += *(const quad *)(from + 4) * weight[1];
            total += *(const quad *)(from + 8) * weight[2];
            total += *(const quad *)(from + 12) * weight[3];
            sum[lane] = total;
        }
        quad a0 = __builtin_shuffle(sum[0], sum[1], (mask){0, 4, 2, 6});
        quad a1 = __builtin_shuffle(sum[0], sum[1], (mask){1, 5, 3, 7});
        quad b0 = __builtin_shuffle(sum[2], sum[3], (mask){0, 4, 2, 6});
        quad b1 = __builtin_shuffle(sum[2], sum[3], (mask){1, 5, 3, 7});
        quad line[4] = {__builtin_shuffle(a0, b0, (mask){0, 1, 4, 5}),
                        __builtin_shuffle(a1, b1, (mask){0, 1, 4, 5}),
                        __builtin_shuffle(a0, b0, (mask){2, 3, 6, 7}),
                        __builtin_shuffle(a1, b1, (mask){2, 3, 6, 7})};
        for (int64_t row = 0; row < 4; row++)
            memcpy(out + row * room + base, &line[row], sizeof line[row]);
        quad apart = line[2] - line[3];
        safe &= (line[2] < high) & (line[2] >= low) & (line[3] < high) & (line[3] >= low) &
                (apart < slack) & (apart > -slack);
    }
    return (safe[0] & safe[1] & safe[2] & safe[3]) != 0;
}

static void across_line(const double *coarse, const struct axes *a, double *out) {
    for (int64_t column = 0; column < a->columns; column++) {
        const double *from = coarse + a->across_first[column];
        const double *weight = a->across + a->across_taps * column;
        double total = 0.0;
        for (int64_t tap = 0; tap < a->across_taps; tap++) total += from[tap] * weight[tap];
        out[column] = total;
    }
}

/* One fine line from the lines `room` apart in `lines`, from `first` on; as doubles or floats. */
#define ALONG_LINE(NAME, TYPE)                                                                    \
    CLONES static void NAME(const double *lines, int64_t room, int64_t first,                     \
                            const double *weight, int64_t taps, int64_t columns, double shift,    \
                            TYPE *restrict out) {                                                 \
        const double *from = lines + first * room, *next = from + room;                           \
        if (taps == 2) {                                                                          \
            double near = weight[0], far = weight[1];                                             \
            for (int64_t column = 0; column < columns; column++)                                  \
                out[column] = (TYPE)((from[column] * near + next[column] * far) + shift);         \
            return;                                                                               \
        }                                                                                         \
        for (int64_t column = 0; column < columns; column++) {                                    \
            double total = 0.0;                                                                   \
            for (int64_t tap = 0; tap < taps; tap++)                                              \
                total += from[tap * room + column] * weight[tap];                                 \
            out[column] = (TYPE)(total + shift);                                                  \
        }                                                                                         \
    }
ALONG_LINE(along_line, double)
ALONG_LINE(along_line_single, float)

/* Where the results go: doubles or floats. */
struct places {
    double *lat, *lon;
    float *lat_single, *lon_single;
};

/* Highest |latitude| of a scan, -1 when nothing is known; the first known longitude beside it. */
static double survey(const double *lat, const double *lon, int64_t count, double *reference) {
    double highest = -1.0;
    *reference = 0.0;
    for (int64_t at = 0; at < count; at++) {
        if (isnan(lat[at])) continue;
        if (highest < 0.0) *reference = lon[at];
        if (fabs(lat[at]) > highest) highest = fabs(lat[at]);
    }
    return highest;
}

static inline void put(double *out, float *single, int64_t at, double value) {
    if (out)
        out[at] = value;
    else
        single[at] = (float)value;
}

/* Interpolate one scan's `lines` fine lines by latitude and longitude. */
static void by_degrees(const double *lat, const double *lon, double reference,
                       const struct axes *a, const int32_t *first, const double *along,
                       int64_t base, int64_t lines, double *scratch, const struct places *out,
                       int64_t top) {
    int64_t room = (a->columns + 3) & ~(int64_t)3, coarse = a->coarse_columns;
    double *packed = scratch, *lats = scratch + 4 * coarse * ((a->per + 1) / 2);
    double *lons = lats + a->per * room;
    int inside = 0;
    if (a->per == 2 && a->across_taps == 4) {
        if (!pack_pair(lat, lon, coarse, reference, packed))
            for (int64_t at = 0; at < coarse; at++) {
                packed[4 * at + 2] = unwrap(lon[at], reference);
                packed[4 * at + 3] = unwrap(lon[coarse + at], reference);
            }
        inside = across_pair(packed, a, reference, lats);
    } else {
        for (int64_t line = 0; line < a->per; line++) {
            for (int64_t at = 0; at < coarse; at++)
                packed[at] = unwrap(lon[line * coarse + at], reference);
            across_line(lat + line * coarse, a, lats + line * room);
            across_line(packed, a, lons + line * room);
        }
    }
    double *row = lons + a->per * room;
    for (int64_t line = 0; line < lines; line++) {
        const double *weight = along + line * a->along_taps;
        int64_t from = first[line] - base, at = (top + line) * a->columns;
        if (out->lat)
            along_line(lats, room, from, weight, a->along_taps, a->columns, 0.0, out->lat + at);
        else
            along_line_single(lats, room, from, weight, a->along_taps, a->columns, 0.0,
                              out->lat_single + at);
        if (inside && out->lon)
            along_line(lons, room, from, weight, a->along_taps, a->columns, reference,
                       out->lon + at);
        else if (inside)
            along_line_single(lons, room, from, weight, a->along_taps, a->columns, reference,
                              out->lon_single + at);
        else {
            along_line(lons, room, from, weight, a->along_taps, a->columns, reference, row);
            for (int64_t column = 0; column < a->columns; column++)
                put(out->lon, out->lon_single, at + column, wrap(row[column]));
        }
    }
}

/* The same through unit vectors. */
static void by_vectors(const double *lat, const double *lon, const struct axes *a,
                       const int32_t *first, const double *along, int64_t base, int64_t lines,
                       double *scratch, const struct places *out, int64_t top) {
    int64_t room = (a->columns + 3) & ~(int64_t)3, coarse = a->coarse_columns;
    double *axis[3], *lines_of[3];
    for (int64_t k = 0; k < 3; k++) {
        axis[k] = scratch + k * coarse;
        lines_of[k] = scratch + 3 * coarse + k * a->per * room;
    }
    double *row[3];
    for (int64_t k = 0; k < 3; k++) row[k] = scratch + 3 * coarse + (3 * a->per + k) * room;
    for (int64_t line = 0; line < a->per; line++) {
        for (int64_t at = 0; at < coarse; at++) {
            double phi = lat[line * coarse + at] * RADIANS, lam = lon[line * coarse + at] * RADIANS;
            axis[0][at] = cos(phi) * cos(lam);
            axis[1][at] = cos(phi) * sin(lam);
            axis[2][at] = sin(phi);
        }
        for (int64_t k = 0; k < 3; k++) across_line(axis[k], a, lines_of[k] + line * room);
    }
    for (int64_t line = 0; line < lines; line++) {
        const double *weight = along + line * a->along_taps;
        for (int64_t k = 0; k < 3; k++)
            along_line(lines_of[k], room, first[line] - base, weight, a->along_taps, a->columns,
                       0.0, row[k]);
        for (int64_t column = 0; column < a->columns; column++) {
            double x = row[0][column], y = row[1][column], z = row[2][column];
            int64_t at = (top + line) * a->columns + column;
            put(out->lat, out->lat_single, at, atan2(z, hypot(x, y)) * DEGREES);
            put(out->lon, out->lon_single, at, wrap(atan2(y, x) * DEGREES));
        }
    }
}

/* Doubles of scratch that `swathmill_geolocate` wants. */
EXPORT int64_t swathmill_geolocate_scratch(int64_t coarse_columns, int64_t columns, int64_t per) {
    int64_t room = (columns + 3) & ~(int64_t)3;
    return 4 * coarse_columns * ((per + 1) / 2) + (3 * per + 3) * room + 3 * coarse_columns;
}

/* lat, lon: coarse degrees, groups * per lines of coarse_columns, NaN where unknown.
   along_first counts coarse lines from the top of the granule, along has along_taps weights per
   fine line; likewise across. Group g makes fine lines g * lines on; the last takes the rest.
   The results are doubles, or floats when `single`. */
EXPORT void swathmill_geolocate(const double *lat, const double *lon, int64_t groups, int64_t per,
                                int64_t coarse_columns, int64_t rows, int64_t columns,
                                int64_t lines, const int32_t *along_first, const double *along,
                                int64_t along_taps, const int32_t *across_first,
                                const double *across, int64_t across_taps, double polar_latitude,
                                double *scratch, int32_t single, void *out_lat, void *out_lon) {
    struct axes a = {coarse_columns, columns, per, across_taps, along_taps, across_first, across};
    struct places out = {single ? NULL : out_lat, single ? NULL : out_lon, single ? out_lat : NULL,
                         single ? out_lon : NULL};
    for (int64_t group = 0; group < groups; group++) {
        const double *lats = lat + group * per * coarse_columns;
        const double *lons = lon + group * per * coarse_columns;
        int64_t top = group * lines, count = group == groups - 1 ? rows - top : lines;
        double reference, highest = survey(lats, lons, per * coarse_columns, &reference);
        if (highest > polar_latitude)
            by_vectors(lats, lons, &a, along_first + top, along + top * along_taps, group * per,
                       count, scratch, &out, top);
        else
            by_degrees(lats, lons, reference, &a, along_first + top, along + top * along_taps,
                       group * per, count, scratch, &out, top);
    }
}
