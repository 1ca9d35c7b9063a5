/* Fast DEFLATE for the tiles of a GeoTIFF (RFC 1950 and 1951).
 *
 * Rasters after the predictor are long runs and noise: greedy matches from one hash table find the
 * runs, and the code of every block is made for its bytes. Several times faster than zlib's level 6
 * at about its size on such data. The bytes depend on the input alone.
 */
#include "common.h"

#define HASH_BITS 14
#define WINDOW 32768
#define LEAST_MATCH 4
#define MOST_MATCH 258
#define BLOCK_TOKENS 49152
#define LITERALS 286
#define DISTANCES 30
#define ORDERS 19
#define MOST_STORED 65535

typedef struct {
    uint8_t *at;
    uint64_t bits;
    int count;
} Writer;

static inline void put(Writer *w, uint64_t value, int bits)
{
    w->bits |= value << w->count;
    w->count += bits;
}

/* Hand over whole bytes; at most 7 bits stay behind. Needs 8 bytes of room. */
static inline void hand_over(Writer *w)
{
    for (int i = 0; i < 8; i++)
        w->at[i] = (uint8_t)(w->bits >> (8 * i));
    int bytes = w->count >> 3;
    w->at += bytes;
    w->bits >>= 8 * bytes;
    w->count &= 7;
}

static inline uint32_t load32(const uint8_t *p)
{
    uint32_t value;
    memcpy(&value, p, 4);
    return value;
}

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t value;
    memcpy(&value, p, 8);
    return value;
}

static inline int log2_floor(uint32_t value) { return 31 - __builtin_clz(value); }

/* Symbol, number of extra bits and extra bits of a match's length and distance (RFC 1951, 3.2.5). */
static inline int length_symbol(int length, int *bits, uint32_t *extra)
{
    uint32_t l = (uint32_t)length - 3;
    *bits = 0;
    *extra = 0;
    if (length == MOST_MATCH)
        return 285;
    if (l < 8)
        return 257 + (int)l;
    int power = log2_floor(l);
    *bits = power - 2;
    *extra = l & ((1u << *bits) - 1);
    return 257 + 4 * (power - 1) + (int)((l >> *bits) & 3);
}

static inline int distance_symbol(int distance, int *bits, uint32_t *extra)
{
    uint32_t d = (uint32_t)distance - 1;
    *bits = 0;
    *extra = 0;
    if (d < 4)
        return (int)d;
    int power = log2_floor(d);
    *bits = power - 1;
    *extra = d & ((1u << *bits) - 1);
    return 2 * power + (int)((d >> *bits) & 1);
}

typedef struct {
    uint32_t count;
    int symbol;
} Leaf;

static int by_count(const void *one, const void *other)
{
    const Leaf *a = one, *b = other;
    if (a->count != b->count)
        return a->count < b->count ? -1 : 1;
    return a->symbol - b->symbol;
}

/* Lengths of a prefix code for counts, none above `limit`; 0 for symbols that do not occur. */
static void code_lengths(const uint32_t *counts, int n, int limit, uint8_t *lengths)
{
    Leaf leaves[LITERALS];
    uint32_t weight[2 * LITERALS];
    int parent[2 * LITERALS], used = 0;
    memset(lengths, 0, (size_t)n);
    for (int s = 0; s < n; s++)
        if (counts[s])
            leaves[used++] = (Leaf){counts[s], s};
    if (used == 1)
        lengths[leaves[0].symbol] = 1;
    if (used < 2)
        return;
    qsort(leaves, (size_t)used, sizeof *leaves, by_count);
    for (int deepest = limit + 1; deepest > limit;) {
        /* Two queues: leaves by weight, and inner nodes in the order made. */
        int leaf = 0, inner = used, made = used;
        for (int i = 0; i < used; i++)
            weight[i] = leaves[i].count;
        while (made < 2 * used - 1) {
            int pair[2];
            for (int side = 0; side < 2; side++)
                pair[side] = leaf < used && (inner >= made || weight[leaf] <= weight[inner])
                                 ? leaf++
                                 : inner++;
            weight[made] = weight[pair[0]] + weight[pair[1]];
            parent[pair[0]] = parent[pair[1]] = made++;
        }
        int depth[2 * LITERALS];
        depth[made - 1] = 0;
        deepest = 0;
        for (int i = made - 2; i >= 0; i--) {
            depth[i] = depth[parent[i]] + 1;
            if (i < used) {
                lengths[leaves[i].symbol] = (uint8_t)depth[i];
                deepest = depth[i] > deepest ? depth[i] : deepest;
            }
        }
        /* Too deep: even the counts out and try again; their order stays. */
        for (int i = 0; i < used && deepest > limit; i++)
            leaves[i].count = (leaves[i].count >> 1) + 1;
    }
}

/* Canonical codes of lengths, bits reversed as they go out. */
static void make_codes(const uint8_t *lengths, int n, uint16_t *codes)
{
    int count[16] = {0};
    uint32_t next[16], code = 0;
    for (int s = 0; s < n; s++)
        count[lengths[s]]++;
    count[0] = 0;
    for (int bits = 1; bits < 16; bits++) {
        code = (code + (uint32_t)count[bits - 1]) << 1;
        next[bits] = code;
    }
    for (int s = 0; s < n; s++) {
        uint32_t forward = lengths[s] ? next[lengths[s]]++ : 0, back = 0;
        for (int bit = 0; bit < lengths[s]; bit++)
            back |= ((forward >> bit) & 1u) << (lengths[s] - 1 - bit);
        codes[s] = (uint16_t)back;
    }
}

typedef struct {
    uint32_t tokens[BLOCK_TOKENS]; /* a literal, or 1 << 31 | length << 16 | distance - 1 */
    int used;
    uint32_t literals[LITERALS], distances[DISTANCES];
    int32_t head[1 << HASH_BITS];
} State;

/* The code lengths of a block in their own run-length code (RFC 1951, 3.2.7). */
static int run_lengths(const uint8_t *lengths, int n, uint8_t *symbols, uint8_t *extras)
{
    int made = 0;
    for (int i = 0; i < n;) {
        int run = 1;
        while (i + run < n && lengths[i + run] == lengths[i])
            run++;
        int left = run;
        if (lengths[i] == 0) {
            while (left >= 3) {
                int part = left > 138 ? 138 : left;
                symbols[made] = part > 10 ? 18 : 17;
                extras[made++] = (uint8_t)(part > 10 ? part - 11 : part - 3);
                left -= part;
            }
        } else {
            symbols[made] = lengths[i];
            extras[made++] = 0;
            left--;
            while (left >= 3) {
                int part = left > 6 ? 6 : left;
                symbols[made] = 16;
                extras[made++] = (uint8_t)(part - 3);
                left -= part;
            }
        }
        for (; left > 0; left--) {
            symbols[made] = lengths[i];
            extras[made++] = 0;
        }
        i += run;
    }
    return made;
}

static void put_stored(Writer *w, const uint8_t *from, int64_t n, int last)
{
    do {
        int64_t part = n > MOST_STORED ? MOST_STORED : n;
        put(w, (uint64_t)(last && part == n), 3);
        w->count = (w->count + 7) & ~7;
        put(w, (uint64_t)part, 16);
        put(w, (uint64_t)part ^ 0xffff, 16);
        hand_over(w);
        memcpy(w->at, from, (size_t)part);
        w->at += part;
        from += part;
        n -= part;
    } while (n > 0);
}

static const uint8_t ORDER[ORDERS] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
static const uint8_t ORDER_EXTRA[ORDERS] = {[16] = 2, [17] = 3, [18] = 7};

static void put_block(State *s, Writer *w, const uint8_t *from, int64_t n, int last)
{
    uint8_t lengths[LITERALS + DISTANCES], distance_lengths[DISTANCES], order_lengths[ORDERS];
    uint8_t symbols[LITERALS + DISTANCES], extras[LITERALS + DISTANCES];
    uint16_t codes[LITERALS], distance_codes[DISTANCES], order_codes[ORDERS];
    uint32_t orders[ORDERS] = {0};
    s->literals[256] = 1;
    code_lengths(s->literals, LITERALS, 15, lengths);
    code_lengths(s->distances, DISTANCES, 15, distance_lengths);
    make_codes(lengths, LITERALS, codes);
    make_codes(distance_lengths, DISTANCES, distance_codes);
    int literals = LITERALS, distances = DISTANCES, listed = ORDERS;
    while (literals > 257 && lengths[literals - 1] == 0)
        literals--;
    while (distances > 1 && distance_lengths[distances - 1] == 0)
        distances--;
    uint64_t bits = 3 + 14;
    for (int i = 0; i < LITERALS; i++) {
        int extra = i < 265 || i == 285 ? 0 : (i - 261) / 4;
        bits += (uint64_t)s->literals[i] * (uint64_t)(lengths[i] + extra);
    }
    for (int i = 0; i < DISTANCES; i++)
        bits += (uint64_t)s->distances[i] * (uint64_t)(distance_lengths[i] + (i < 4 ? 0 : i / 2 - 1));
    memcpy(lengths + literals, distance_lengths, (size_t)distances);
    int runs = run_lengths(lengths, literals + distances, symbols, extras);
    for (int i = 0; i < runs; i++)
        orders[symbols[i]]++;
    code_lengths(orders, ORDERS, 7, order_lengths);
    make_codes(order_lengths, ORDERS, order_codes);
    while (listed > 4 && order_lengths[ORDER[listed - 1]] == 0)
        listed--;
    bits += 3 * (uint64_t)listed;
    for (int i = 0; i < ORDERS; i++)
        bits += (uint64_t)orders[i] * (uint64_t)(order_lengths[i] + ORDER_EXTRA[i]);
    if (bits >= 8 * ((uint64_t)n + 5 * ((uint64_t)n / MOST_STORED + 1))) {
        put_stored(w, from, n, last);
        return;
    }
    put(w, (uint64_t)last | 2u << 1, 3);
    put(w, (uint64_t)(literals - 257), 5);
    put(w, (uint64_t)(distances - 1), 5);
    put(w, (uint64_t)(listed - 4), 4);
    hand_over(w);
    for (int i = 0; i < listed; i++) {
        put(w, order_lengths[ORDER[i]], 3);
        hand_over(w);
    }
    for (int i = 0; i < runs; i++) {
        put(w, order_codes[symbols[i]], order_lengths[symbols[i]]);
        put(w, extras[i], ORDER_EXTRA[symbols[i]]);
        hand_over(w);
    }
    uint32_t whole[LITERALS]; /* a code and its length */
    for (int i = 0; i < LITERALS; i++)
        whole[i] = (uint32_t)codes[i] | (uint32_t)(i < literals ? lengths[i] : 0) << 16;
    for (int i = 0; i < s->used; i++) {
        uint32_t token = s->tokens[i];
        if (token < 256) {
            if (w->count > 48)
                hand_over(w);
            put(w, whole[token] & 0xffff, (int)(whole[token] >> 16));
            continue;
        }
        int extra_bits;
        uint32_t extra;
        int symbol = length_symbol((int)(token >> 16 & 0x1ff), &extra_bits, &extra);
        hand_over(w);
        put(w, whole[symbol] & 0xffff, (int)(whole[symbol] >> 16));
        put(w, extra, extra_bits);
        symbol = distance_symbol((int)(token & 0x7fff) + 1, &extra_bits, &extra);
        put(w, distance_codes[symbol], distance_lengths[symbol]);
        put(w, extra, extra_bits);
    }
    hand_over(w);
    put(w, codes[256], lengths[256]);
    hand_over(w);
}

static void begin_block(State *s)
{
    s->used = 0;
    memset(s->literals, 0, sizeof s->literals);
    memset(s->distances, 0, sizeof s->distances);
}

static inline void add_literal(State *s, uint8_t byte)
{
    s->tokens[s->used++] = byte;
    s->literals[byte]++;
}

static inline int match_length(const uint8_t *one, const uint8_t *other, int most)
{
    int n = LEAST_MATCH;
    while (n + 8 <= most) {
        uint64_t differ = load64(one + n) ^ load64(other + n);
        if (differ)
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
            return n + (__builtin_ctzll(differ) >> 3);
#else
            return n + (__builtin_clzll(differ) >> 3);
#endif
        n += 8;
    }
    while (n < most && one[n] == other[n])
        n++;
    return n;
}

static void compress(State *s, const uint8_t *in, int64_t n, Writer *w)
{
    int64_t at = 0, block = 0, misses = 0;
    begin_block(s);
    memset(s->head, 0xff, sizeof s->head);
    while (at < n) {
        if (s->used >= BLOCK_TOKENS - 16) {
            put_block(s, w, in + block, at - block, 0);
            block = at;
            begin_block(s);
        }
        if (at + LEAST_MATCH > n) {
            add_literal(s, in[at++]);
            continue;
        }
        uint32_t four = load32(in + at);
        int32_t *slot = s->head + ((four * 2654435761u) >> (32 - HASH_BITS));
        int64_t seen = *slot;
        *slot = (int32_t)at;
        if (seen < 0 || at - seen > WINDOW || load32(in + seen) != four) {
            /* Where nothing repeats, look at fewer and fewer places. */
            int64_t step = 1 + (misses++ >> 5);
            step = step > 8 ? 8 : step;
            for (int64_t end = at + step < n ? at + step : n; at < end; at++)
                add_literal(s, in[at]);
            continue;
        }
        misses = 0;
        int most = n - at < MOST_MATCH ? (int)(n - at) : MOST_MATCH;
        int length = match_length(in + at, in + seen, most), bits;
        uint32_t extra;
        s->tokens[s->used++] =
            1u << 31 | (uint32_t)length << 16 | (uint32_t)(at - seen - 1);
        s->literals[length_symbol(length, &bits, &extra)]++;
        s->distances[distance_symbol((int)(at - seen), &bits, &extra)]++;
        at += length;
    }
    put_block(s, w, in + block, n - block, 1);
}

/* Sums of a run of at most 5552 bytes: all bytes, and each times its distance from the end. */
CLONES static void sums(const uint8_t *in, int n, uint32_t *plain, uint32_t *weighted)
{
    uint32_t a = 0, b = 0;
    for (int i = 0; i < n; i++) {
        a += in[i];
        b += (uint32_t)(n - i) * in[i];
    }
    *plain = a;
    *weighted = b;
}

static uint32_t adler32(const uint8_t *in, int64_t n)
{
    uint64_t a = 1, b = 0;
    while (n > 0) {
        int part = n > 5552 ? 5552 : (int)n;
        uint32_t plain, weighted;
        sums(in, part, &plain, &weighted);
        b = (b + (uint64_t)part * a + weighted) % 65521;
        a = (a + plain) % 65521;
        in += part;
        n -= part;
    }
    return (uint32_t)(b << 16 | a);
}

/* Bytes of room that `deflate_tile` needs for n bytes. */
EXPORT int64_t deflate_bound(int64_t n)
{
    return n + (n / 1024 + 2) * 10 + 64;
}

/* A zlib stream of n bytes into `out`, which has deflate_bound(n) bytes; its length, or -1 when
 * memory ran out. */
EXPORT int64_t deflate_tile(const uint8_t *in, int64_t n, uint8_t *out)
{
    State *s = malloc(sizeof *s);
    if (!s)
        return -1;
    Writer w = {.at = out};
    put(&w, 0x0178, 16); /* deflate, window of 32 KiB, fastest; a multiple of 31 */
    hand_over(&w);
    compress(s, in, n, &w);
    free(s);
    w.count = (w.count + 7) & ~7;
    hand_over(&w);
    uint32_t check = adler32(in, n);
    for (int byte = 3; byte >= 0; byte--)
        *w.at++ = (uint8_t)(check >> (8 * byte));
    return w.at - out;
}
