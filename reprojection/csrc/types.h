/* Numbers of the pixel types, as reprojection/compiled.py has them. */
#ifndef SWATHMILL_TYPES_H
#define SWATHMILL_TYPES_H

enum { TYPE_U8, TYPE_I8, TYPE_U16, TYPE_I16, TYPE_U32, TYPE_I32, TYPE_F32, TYPE_F64 };

static inline float next_f32(float from, float to) { return nextafterf(from, to); }
static inline double next_f64(double from, double to) { return nextafter(from, to); }

#endif
