/* Includes IMPLEMENTATION once per pixel type of the file's TYPES. */

#if TYPES & SMALL_TYPES
#define T uint8_t
#define W float
#define T_MASK int32_t
#define NAME(x) x##_u8
#define T_INTEGER 1
#define T_SMALL 1
#define T_WIDE 0
#define T_UNSIGNED 1
#define T_MIN 0
#define T_MAX 255
#include "one_type.h"

#define T int8_t
#define W float
#define T_MASK int32_t
#define NAME(x) x##_i8
#define T_INTEGER 1
#define T_SMALL 1
#define T_WIDE 0
#define T_UNSIGNED 0
#define T_MIN -128
#define T_MAX 127
#include "one_type.h"

#define T uint16_t
#define W float
#define T_MASK int32_t
#define NAME(x) x##_u16
#define T_INTEGER 1
#define T_SMALL 1
#define T_WIDE 0
#define T_UNSIGNED 1
#define T_MIN 0
#define T_MAX 65535
#include "one_type.h"

#define T int16_t
#define W float
#define T_MASK int32_t
#define NAME(x) x##_i16
#define T_INTEGER 1
#define T_SMALL 1
#define T_WIDE 0
#define T_UNSIGNED 0
#define T_MIN -32768
#define T_MAX 32767
#include "one_type.h"

#endif
#if TYPES & FLOAT_TYPE
#define T float
#define W float
#define T_MASK int32_t
#define NAME(x) x##_f32
#define T_INTEGER 0
#define T_SMALL 0
#define T_WIDE 0
#define T_UNSIGNED 0
#define T_MIN 0
#define T_MAX 0
#include "one_type.h"

#endif
#if TYPES & WIDE_TYPES
#define T uint32_t
#define W double
#define T_MASK int64_t
#define NAME(x) x##_u32
#define T_INTEGER 1
#define T_SMALL 0
#define T_WIDE 0
#define T_UNSIGNED 1
#define T_MIN 0
#define T_MAX 4294967295.0
#include "one_type.h"

#define T int32_t
#define W double
#define T_MASK int64_t
#define NAME(x) x##_i32
#define T_INTEGER 1
#define T_SMALL 0
#define T_WIDE 0
#define T_UNSIGNED 0
#define T_MIN -2147483648.0
#define T_MAX 2147483647.0
#include "one_type.h"

#define T double
#define W double
#define T_MASK int64_t
#define NAME(x) x##_f64
#define T_INTEGER 0
#define T_SMALL 0
#define T_WIDE 1
#define T_UNSIGNED 0
#define T_MIN 0
#define T_MAX 0
#include "one_type.h"
#endif
