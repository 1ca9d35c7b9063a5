/* Includes IMPLEMENTATION for the type that each_type.h has named, and forgets its names. */

#include IMPLEMENTATION
#undef T
#undef W
#undef T_MASK
#undef NAME
#undef T_INTEGER
#undef T_SMALL
#undef T_WIDE
#undef T_UNSIGNED
#undef T_MIN
#undef T_MAX
