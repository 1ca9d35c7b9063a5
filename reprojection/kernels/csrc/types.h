/* Numbers of the pixel types, as reprojection/warp/c_kernels.py has them. */
#ifndef SWATHMILL_TYPES_H
#define SWATHMILL_TYPES_H

enum { TYPE_U8, TYPE_I8, TYPE_U16, TYPE_I16, TYPE_U32, TYPE_I32, TYPE_F32, TYPE_F64 };

#define ALL_SMALL_TYPES(DO) DO(TYPE_U8, u8) DO(TYPE_I8, i8) DO(TYPE_U16, u16) DO(TYPE_I16, i16)
#define ALL_NARROW_TYPES(DO) ALL_SMALL_TYPES(DO) DO(TYPE_F32, f32)

/* Types that each_type.h makes. */
#if defined(SMALL_TYPES)
#define ALL_TYPES(DO) ALL_SMALL_TYPES(DO)
#elif defined(NARROW_TYPES)
#define ALL_TYPES(DO) ALL_NARROW_TYPES(DO)
#else
#define ALL_TYPES(DO) \
    ALL_NARROW_TYPES(DO) DO(TYPE_U32, u32) DO(TYPE_I32, i32) DO(TYPE_F64, f64)
#endif

static inline float next_f32(float from, float to) { return nextafterf(from, to); }
static inline double next_f64(double from, double to) { return nextafter(from, to); }

#endif
