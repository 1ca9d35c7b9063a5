/* Sixteen numbers at a time, in the compiler's own vectors.

   Included after the target of a file is set: the compiler splits vectors for the target of the
   function they are written in, before it inlines. */

typedef float Floats16 __attribute__((vector_size(64)));
typedef int32_t Ints __attribute__((vector_size(64)));
typedef uint32_t Words __attribute__((vector_size(64)));

static const Floats16 U = {-7.5f, -6.5f, -5.5f, -4.5f, -3.5f, -2.5f, -1.5f, -0.5f,
                           0.5f,  1.5f,  2.5f,  3.5f,  4.5f,  5.5f,  6.5f,  7.5f};

/* The local coordinates of a segment's pixels around its whole base. */
INLINE Floats16 local16(double value, float slope, float bend, double *base) {
    double b = floor(value) - BIAS;
    *base = b;
    return (float)(value - b) + U * (slope + U * bend);
}
