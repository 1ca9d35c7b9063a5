/* Numbers of the pixel types, as reprojection/warp/c_kernels.py has them. */
#ifndef SWATHMILL_TYPES_H
#define SWATHMILL_TYPES_H

enum { TYPE_U8, TYPE_I8, TYPE_U16, TYPE_I16, TYPE_U32, TYPE_I32, TYPE_F32, TYPE_F64 };

/* Types that a file makes, by its TYPES. */
#if TYPES & SMALL_TYPES
#define EACH_SMALL_TYPE(DO) DO(TYPE_U8, u8) DO(TYPE_I8, i8) DO(TYPE_U16, u16) DO(TYPE_I16, i16)
#else
#define EACH_SMALL_TYPE(DO)
#endif
#if TYPES & FLOAT_TYPE
#define EACH_FLOAT_TYPE(DO) DO(TYPE_F32, f32)
#else
#define EACH_FLOAT_TYPE(DO)
#endif
#if TYPES & WIDE_TYPES
#define EACH_WIDE_TYPE(DO) DO(TYPE_U32, u32) DO(TYPE_I32, i32) DO(TYPE_F64, f64)
#else
#define EACH_WIDE_TYPE(DO)
#endif
#define ALL_TYPES(DO) EACH_SMALL_TYPE(DO) EACH_FLOAT_TYPE(DO) EACH_WIDE_TYPE(DO)

static inline float next_f32(float from, float to) { return nextafterf(from, to); }
static inline double next_f64(double from, double to) { return nextafter(from, to); }

#endif
