/* A quick DEFLATE (RFC 1951) for tiles of a TIFF. What repeats in them, once samples are differences,
 * is the byte before or the row above; nothing else is looked for. Huffman codes are made anew for
 * each block. Whole numbers only: the same bytes on every CPU. */
#include "common.h"

#define LITERALS 286
#define DISTANCES 30
#define BLOCK (1 << 18)         /* bytes, unless a repeat reaches beyond it */
#define BLOCK_REPEATS (1 << 14)
#define WINDOW 32768
#define STRIDE 4
#define LONGEST 258
#define CODE_BITS 14            /* of the longest code: four, and seven bits over, fit into 64 */
#define LENGTH_CODE_BITS 7
#define STORED_MOST 65535

typedef struct {
    uint32_t literals; /* before the repeat */
    uint16_t length;   /* 0 at the end of a block */
    uint16_t distance;
} Repeat;

typedef struct {
    Repeat repeats[BLOCK_REPEATS + 1];
    uint32_t counts[4][256];
    uint32_t literal_counts[LITERALS + 2], distance_counts[DISTANCES + 2];
    uint8_t literal_lengths[LITERALS + 2], distance_lengths[DISTANCES + 2];
    uint32_t literal_codes[LITERALS + 2], distance_codes[DISTANCES + 2];
} State;

typedef struct {
    uint8_t *next;
    uint64_t bits;
    int held;
} Out;

static inline uint64_t load64(const uint8_t *p)
{
    uint64_t value;
    memcpy(&value, p, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    value = __builtin_bswap64(value);
#endif
    return value;
}

static inline void put(Out *out, uint64_t bits, int count)
{
    out->bits |= bits << out->held;
    out->held += count;
}

/* Leaves at most seven bits; writes eight bytes wherever it stands. */
static inline void flush(Out *out)
{
    uint64_t bits = out->bits;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    bits = __builtin_bswap64(bits);
#endif
    memcpy(out->next, &bits, 8);
    out->next += out->held >> 3;
    out->bits >>= out->held & ~7;
    out->held &= 7;
}

static inline int high_bit(uint32_t value) { return 31 - __builtin_clz(value); }

/* The symbol of a length or distance, and how many extra bits follow it. */
static inline int length_symbol(int length, int *extra)
{
    int over = length - 3;
    if (over < 8 || length == LONGEST) {
        *extra = 0;
        return length == LONGEST ? 285 : 257 + over;
    }
    int top = high_bit((uint32_t)over);
    *extra = top - 2;
    return 257 + 4 * (top - 1) + ((over >> (top - 2)) & 3);
}

static inline int distance_symbol(int distance, int *extra)
{
    int over = distance - 1;
    if (over < 4) {
        *extra = 0;
        return over;
    }
    int top = high_bit((uint32_t)over);
    *extra = top - 1;
    return 2 * top + ((over >> (top - 1)) & 1);
}

/* Code lengths of at most `limit` bits for symbols by how often they occur; at least two get one,
 * as some decoders ask for a complete code. Lengths by Moffat and Katajainen, "In-Place Calculation
 * of Minimum-Redundancy Codes" (1995); too long ones are shortened at the cost of the longest
 * others. */
static void code_lengths(uint32_t *counts, int symbols, int limit, uint8_t *lengths)
{
    uint32_t order[LITERALS + 2], a[LITERALS + 2] = {0};
    int used = 0;
    for (int s = 0; s < symbols; s++)
        used += counts[s] != 0;
    for (int s = 0; used < 2; s++)
        if (!counts[s]) {
            counts[s] = 1;
            used++;
        }
    used = 0;
    for (int s = 0; s < symbols; s++) {
        lengths[s] = 0;
        if (counts[s])
            order[used++] = counts[s] << 9 | (uint32_t)s;
    }
    for (int gap = used / 2; gap > 0; gap = gap == 2 ? 1 : gap * 5 / 11)
        for (int i = gap; i < used; i++) {
            uint32_t held = order[i];
            int j = i;
            for (; j >= gap && order[j - gap] > held; j -= gap)
                order[j] = order[j - gap];
            order[j] = held;
        }
    for (int i = 0; i < used; i++)
        a[i] = order[i] >> 9;
    int root = 0, leaf = 2;
    a[0] += a[1];
    for (int next = 1; next < used - 1; next++) {
        if (leaf >= used || a[root] < a[leaf]) {
            a[next] = a[root];
            a[root++] = (uint32_t)next;
        } else
            a[next] = a[leaf++];
        if (leaf >= used || (root < next && a[root] < a[leaf])) {
            a[next] += a[root];
            a[root++] = (uint32_t)next;
        } else
            a[next] += a[leaf++];
    }
    a[used - 2] = 0;
    for (int next = used - 3; next >= 0; next--)
        a[next] = a[a[next]] + 1;
    int of_length[64] = {0}, depth = 0, free_ones = 1, inner = used - 2;
    for (int left = used; left > 0 && free_ones > 0; depth++) {
        int internal = 0;
        while (inner >= 0 && (int)a[inner] == depth) {
            internal++;
            inner--;
        }
        of_length[depth < limit ? depth : limit] += free_ones - internal;
        left -= free_ones - internal;
        free_ones = 2 * internal;
    }
    uint32_t taken = 0;
    for (int n = 1; n <= limit; n++)
        taken += (uint32_t)of_length[n] << (limit - n);
    for (; taken > 1u << limit; taken--) {
        of_length[limit]--;
        for (int n = limit - 1; n > 0; n--)
            if (of_length[n]) {
                of_length[n]--;
                of_length[n + 1] += 2;
                break;
            }
    }
    int at = used;
    for (int n = 1; n <= limit; n++)
        for (int k = 0; k < of_length[n]; k++)
            lengths[order[--at] & 511] = (uint8_t)n;
}

/* Canonical codes, their first bit lowest. */
static void codes_of(const uint8_t *lengths, int symbols, uint32_t *codes)
{
    uint32_t next[CODE_BITS + 2] = {0}, of_length[CODE_BITS + 1] = {0};
    for (int s = 0; s < symbols; s++)
        of_length[lengths[s]]++;
    of_length[0] = 0;
    for (int n = 1; n <= CODE_BITS; n++)
        next[n] = (next[n - 1] + of_length[n - 1]) << 1;
    for (int s = 0; s < symbols; s++) {
        uint32_t code = lengths[s] ? next[lengths[s]]++ : 0, turned = 0;
        for (int bit = 0; bit < lengths[s]; bit++)
            turned |= (code >> bit & 1) << (lengths[s] - 1 - bit);
        codes[s] = turned;
    }
}

/* The head of a block with codes of its own: code lengths, run by run, themselves in Huffman codes.
 * Returns its bits; writes them where `out` is not null. */
static int64_t describe(const State *state, Out *out)
{
    static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    static const uint8_t extra[3] = {2, 3, 7};
    uint8_t all[LITERALS + DISTANCES], symbols[LITERALS + DISTANCES], more[LITERALS + DISTANCES];
    int literals = LITERALS, distances = DISTANCES, n = 0;
    while (literals > 257 && !state->literal_lengths[literals - 1])
        literals--;
    while (distances > 1 && !state->distance_lengths[distances - 1])
        distances--;
    memcpy(all, state->literal_lengths, (size_t)literals);
    memcpy(all + literals, state->distance_lengths, (size_t)distances);
    uint32_t counts[19] = {0};
    for (int i = 0, total = literals + distances; i < total;) {
        int run = 1;
        while (i + run < total && all[i + run] == all[i])
            run++;
        int symbol = all[i], take = 1, over = 0;
        if (all[i] == 0 && run >= 3) {
            take = run < 138 ? run : 138;
            symbol = take < 11 ? 17 : 18;
            over = take - (take < 11 ? 3 : 11);
        } else if (i > 0 && all[i] == all[i - 1] && run >= 3) {
            take = run < 6 ? run : 6;
            symbol = 16;
            over = take - 3;
        }
        symbols[n] = (uint8_t)symbol;
        more[n++] = (uint8_t)over;
        counts[symbol]++;
        i += take;
    }
    uint8_t lengths[19];
    uint32_t codes[19];
    code_lengths(counts, 19, LENGTH_CODE_BITS, lengths);
    codes_of(lengths, 19, codes);
    int told = 19;
    while (told > 4 && !lengths[order[told - 1]])
        told--;
    int64_t bits = 14 + 3 * told;
    for (int i = 0; i < n; i++)
        bits += lengths[symbols[i]] + (symbols[i] > 15 ? extra[symbols[i] - 16] : 0);
    if (!out)
        return bits;
    put(out, (uint64_t)(literals - 257) | (uint64_t)(distances - 1) << 5 | (uint64_t)(told - 4) << 10, 14);
    flush(out);
    for (int i = 0; i < told; i++) {
        put(out, lengths[order[i]], 3);
        flush(out);
    }
    for (int i = 0; i < n; i++) {
        put(out, codes[symbols[i]], lengths[symbols[i]]);
        if (symbols[i] > 15)
            put(out, more[i], extra[symbols[i] - 16]);
        flush(out);
    }
    return bits;
}

static void count_literals(State *state, const uint8_t *from, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        uint64_t eight = load64(from + i);
        for (int k = 0; k < 8; k++)
            state->counts[k & 3][(eight >> 8 * k) & 255]++;
    }
    for (; i < n; i++)
        state->counts[0][from[i]]++;
}

static void stored(Out *out, const uint8_t *from, size_t n, int last)
{
    do {
        size_t part = n < STORED_MOST ? n : STORED_MOST;
        put(out, (uint64_t)(last && part == n), 3);
        out->held = (out->held + 7) & ~7;
        flush(out);
        put(out, part | (part ^ 0xffff) << 16, 32);
        flush(out);
        memcpy(out->next, from, part);
        out->next += part;
        from += part;
        n -= part;
    } while (n);
}

static void coded(const State *state, Out *out, const uint8_t *from, const Repeat *repeats)
{
    Out o = *out;
    uint32_t words[256]; /* code and length of each literal */
    for (int s = 0; s < 256; s++)
        words[s] = state->literal_codes[s] << 4 | state->literal_lengths[s];
    for (;; repeats++) {
        size_t n = repeats->literals;
        for (; n >= 4; n -= 4, from += 4) {
            uint32_t a = words[from[0]], b = words[from[1]], c = words[from[2]], d = words[from[3]];
            put(&o, a >> 4, a & 15);
            put(&o, b >> 4, b & 15);
            put(&o, c >> 4, c & 15);
            put(&o, d >> 4, d & 15);
            flush(&o);
        }
        for (; n; n--, from++)
            put(&o, words[*from] >> 4, words[*from] & 15);
        flush(&o);
        if (!repeats->length)
            break;
        int extra, symbol = length_symbol(repeats->length, &extra);
        put(&o, state->literal_codes[symbol], state->literal_lengths[symbol]);
        put(&o, (uint64_t)(repeats->length - 3) & ((1u << extra) - 1), extra);
        symbol = distance_symbol(repeats->distance, &extra);
        put(&o, state->distance_codes[symbol], state->distance_lengths[symbol]);
        put(&o, (uint64_t)(repeats->distance - 1) & ((1u << extra) - 1), extra);
        flush(&o);
        from += repeats->length;
    }
    put(&o, state->literal_codes[256], state->literal_lengths[256]);
    flush(&o);
    *out = o;
}

static void write_block(State *state, Out *out, const uint8_t *from, size_t n, int repeats, int last)
{
    memset(state->literal_counts, 0, sizeof state->literal_counts);
    memset(state->distance_counts, 0, sizeof state->distance_counts);
    memset(state->counts, 0, sizeof state->counts);
    int64_t bits = 0;
    const uint8_t *at = from;
    for (int i = 0; i <= repeats; i++) {
        const Repeat *one = state->repeats + i;
        count_literals(state, at, one->literals);
        at += one->literals + one->length;
        if (one->length) {
            int extra;
            state->literal_counts[length_symbol(one->length, &extra)]++;
            bits += extra;
            state->distance_counts[distance_symbol(one->distance, &extra)]++;
            bits += extra;
        }
    }
    for (int s = 0; s < 256; s++)
        for (int k = 0; k < 4; k++)
            state->literal_counts[s] += state->counts[k][s];
    state->literal_counts[256] = 1;
    code_lengths(state->literal_counts, LITERALS, CODE_BITS, state->literal_lengths);
    code_lengths(state->distance_counts, DISTANCES, CODE_BITS, state->distance_lengths);
    for (int s = 0; s < LITERALS; s++)
        bits += (int64_t)state->literal_counts[s] * state->literal_lengths[s];
    for (int s = 0; s < DISTANCES; s++)
        bits += (int64_t)state->distance_counts[s] * state->distance_lengths[s];
    if (bits + describe(state, NULL) >= 8 * (int64_t)n) {
        stored(out, from, n, last);
        return;
    }
    codes_of(state->literal_lengths, LITERALS, state->literal_codes);
    codes_of(state->distance_lengths, DISTANCES, state->distance_codes);
    put(out, 4 | (uint64_t)last, 3);
    flush(out);
    describe(state, out);
    coded(state, out, from, state->repeats);
}

static inline int same(const uint8_t *a, const uint8_t *b) { return load64(a) == load64(b); }

static inline int64_t same_bytes(const uint8_t *a, const uint8_t *b, const uint8_t *end)
{
    const uint8_t *start = b;
    for (; end - b >= 8; a += 8, b += 8) {
        uint64_t differ = load64(a) ^ load64(b);
        if (differ)
            return b - start + (__builtin_ctzll(differ) >> 3);
    }
    while (b < end && *a == *b)
        a++, b++;
    return b - start;
}

/* The next place from `p` on where eight bytes repeat those one byte or one row before, and how
 * far before; `limit` without any. Not every place is looked at: repeats are widened backwards. */
static const uint8_t *find(const uint8_t *p, const uint8_t *limit, const uint8_t *second_row,
                           int64_t row, int64_t *distance)
{
    for (; p < limit; p += STRIDE) {
        *distance = 1;
        if (same(p - 1, p))
            return p;
        if (p >= second_row && same(p - row, p)) {
            /* The byte before is told in fewer bits. */
            int even = same(p, p + 1);
            *distance = even ? 1 : row;
            return p + even;
        }
    }
    return limit;
}

/* Compress `n` bytes in rows of `row` bytes into `to`, which needs `room` for what does not shrink: a
 * 4096th more, and a kilobyte. Returns how many bytes it took, or -1 without room or memory. */
EXPORT int64_t deflate_tile(const uint8_t *in, int64_t n, int64_t row, uint8_t *to, int64_t room)
{
    State *state = room < n + n / 4096 + 1024 ? NULL : malloc(sizeof *state);
    if (!state)
        return -1;
    if (row < 1 || row > WINDOW)
        row = 1;
    Out out = {to, 0, 0};
    const uint8_t *end = in + n, *from = in, *anchor = in;
    /* Eight bytes are read at a time. */
    const uint8_t *search_end = n > 8 ? end - 8 : in, *p = n > 8 ? in + 1 : in;
    const uint8_t *second_row = row < n ? in + row : end;
    int repeats = 0;
    while (p < search_end) {
        int64_t distance, part;
        const uint8_t *limit = search_end - from > BLOCK ? from + BLOCK : search_end;
        if (limit < p)
            limit = p;
        p = find(p, limit, second_row, row, &distance);
        if (p >= limit || repeats == BLOCK_REPEATS) {
            if (limit == search_end && repeats < BLOCK_REPEATS)
                break;
            state->repeats[repeats] = (Repeat){(uint32_t)(p - anchor), 0, 0};
            write_block(state, &out, from, (size_t)(p - from), repeats, 0);
            from = anchor = p;
            repeats = 0;
            continue;
        }
        while (p > anchor && p - distance > in && p[-1] == p[-1 - distance])
            p--;
        int64_t length = same_bytes(p - distance, p, end);
        for (; length >= 3 && repeats < BLOCK_REPEATS; length -= part) {
            part = length < LONGEST ? length : LONGEST;
            uint32_t literals = (uint32_t)(p - anchor);
            state->repeats[repeats++] = (Repeat){literals, (uint16_t)part, (uint16_t)distance};
            p += part;
            anchor = p;
        }
    }
    state->repeats[repeats] = (Repeat){(uint32_t)(end - anchor), 0, 0};
    write_block(state, &out, from, (size_t)(end - from), repeats, 1);
    out.held = (out.held + 7) & ~7;
    flush(&out);
    free(state);
    return out.next - to;
}
