/* The kernels, compiled once per instruction set (-DISA=...). Each computes, byte for byte, what the numpy code beside its caller
   computes; tests/crypto/kernels holds both to that. `blindbayes.crypto.kernels` has checked every array and length before a call. Scratch
   lies on the stack, in tiles, and is wiped where it held keys. Offsets count bytes, sizes of arrays are in comments as
   (rows, ...). `schedule` is an expanded AES-128 key, 11 x 16 bytes. */
#include "aes.h"

#define GLUE(name, isa) name##_##isa
#define NAMED(name, isa) GLUE(name, isa)
#define KERNEL(name) __attribute__((visibility("default"))) void NAMED(name, ISA)

#define TILE 128 /* rows at once; a multiple of STEP */

/* n keys of 16 bytes to n schedules. */
KERNEL(schedules)(const uint8_t *from, size_t n, uint8_t *out)
{
    static const uint8_t constants[10] = {1, 2, 4, 8, 16, 32, 64, 128, 27, 54};
    uint32_t w[44];
    for (size_t at = 0; at < n; at++) {
        memcpy(w, from + 16 * at, 16);
        for (int i = 4; i < 44; i++) {
            uint32_t x = w[i - 1];
            if (i % 4 == 0) x = sub_word(x >> 8 | x << 24) ^ constants[i / 4 - 1];
            w[i] = w[i - 4] ^ x;
        }
        memcpy(out + 176 * at, w, 176);
    }
    wipe(w, sizeof w);
}

/* -- hashes ---------------------------------------------------------------------------------------------------------------- */

/* P of a tile, in place. */
INLINE void permute_tile(const keys *k, uint8_t *tile, size_t n)
{
    for (size_t i = 0; i < n; i += STEP) {
        vec x[U];
        EACH(j) x[j] = load(tile + 16 * (i + V * j));
        encrypt(x, k);
        EACH(j) store(tile + 16 * (i + V * j), x[j]);
    }
}

#ifndef PORTABLE
/* `vectors` of pads of one seed, from P of it, tweaks counted from `first`. */
INLINE void pads_of_row(const keys *k, block inner, uint64_t first, uint64_t domain, size_t vectors, uint8_t *out)
{
    vec p = spread(inner), t = ramp(first, 1, domain), by = pairs(V, 0);
#define PADS(n) { \
        vec x[n]; \
        UNROLL for (int j = 0; j < n; j++) { x[j] = p ^ t; t += by; } \
        encrypt_few(x, k, n); \
        UNROLL for (int j = 0; j < n; j++) store(out + 16 * V * j, x[j] ^ p); \
    }
    for (; vectors > U; vectors -= U, out += 16 * STEP) PADS(U)
    switch (vectors) {
    case 8: PADS(8) break;
    case 7: PADS(7) break;
    case 6: PADS(6) break;
    case 5: PADS(5) break;
    case 4: PADS(4) break;
    case 3: PADS(3) break;
    case 2: PADS(2) break;
    default: PADS(1) break;
    }
#undef PADS
}
#endif

#define MOST 64 /* blocks of a row in one go */

/* Pads of up to TILE rows: block b of row r is H(seed of r) under the tweak (firsts[r] + b, domain), from P of the seeds (inner;
   it and firsts reach to a multiple of STEP). Rows of `words` words lie one after the other in out. */
INLINE void expand_tile(const keys *k, const uint8_t *inner, const uint64_t *firsts, uint64_t domain, size_t n, size_t words,
                        uint64_t *out)
{
    size_t blocks = (words + 1) / 2;
#ifndef PORTABLE
    if (blocks >= 3 * V) { /* a row fills the pipeline by itself */
        uint64_t stage[2 * (MOST + V)];
        for (size_t r = 0; r < n; r++)
            for (size_t from = 0; from < blocks; from += MOST) {
                size_t part = blocks - from < MOST ? blocks - from : MOST, left = words - 2 * from;
                uint64_t *to = out + r * words + 2 * from; /* what is too much stands where the next row comes */
                uint8_t *at = r + 1 < n ? (uint8_t *)to : (uint8_t *)stage;
                pads_of_row(k, load_block(inner + 16 * r), firsts[r] + from, domain, (part + V - 1) / V, at);
                if (at == (uint8_t *)stage) memcpy(to, stage, 8 * (left < 2 * part ? left : 2 * part));
            }
        wipe(stage, sizeof stage);
        return;
    }
#endif
    for (size_t i = 0; i < n; i += STEP) { /* block by block, rows side by side */
        size_t here = n - i < STEP ? n - i : STEP;
        for (size_t b = 0; b < blocks; b++) {
            vec x[U];
            block y[STEP];
            uint64_t *to = out + i * words + 2 * b;
            EACH(j) x[j] = load(inner + 16 * (i + V * j)) ^ (indexed(firsts + i + V * j, domain) + pairs(b, 0));
            encrypt(x, k);
            EACH(j) x[j] ^= load(inner + 16 * (i + V * j));
            if (words == 2 && here == STEP) { EACH(j) store(to + 2 * V * j, x[j]); continue; }
            memcpy(y, x, sizeof y);
            if (2 * b + 2 <= words) for (size_t r = 0; r < here; r++) store_block(to + r * words, y[r]);
            else for (size_t r = 0; r < here; r++) to[r * words] = y[r][0];
        }
    }
}

/* (n, words) from seeds (n, 2). Block b of row r has the tweak firsts[r] + b, or first + r * step + b without firsts. */
KERNEL(expand)(const uint8_t *schedule, const uint8_t *seeds, const uint64_t *firsts, uint64_t first, uint64_t step,
               uint64_t domain, size_t n, size_t words, uint64_t *out)
{
    keys k;
    uint8_t inner[16 * TILE] = {0};
    uint64_t at[TILE] = {0};
    load_keys(&k, schedule);
    for (size_t low = 0; low < n; low += TILE) {
        size_t here = n - low < TILE ? n - low : TILE;
        memcpy(inner, seeds + 16 * low, 16 * here);
        permute_tile(&k, inner, here);
        for (size_t r = 0; r < here; r++) at[r] = firsts ? firsts[low + r] : first + (low + r) * step;
        expand_tile(&k, inner, at, domain, here, words, out + low * words);
    }
    wipe(inner, sizeof inner);
}

/* -- correlated transfers ---------------------------------------------------------------------------------------------------- */

#define TREES 32
#define LEAVES 16
#define GROUP 512 /* bytes of a stream at once; a multiple of 16 * STEP */

/* Streams of one tree, (LEAVES, GROUP) words, of which `here` bytes count, to the XORs of those with bit b of their number set,
   and of all. */
INLINE void fold_group(const uint8_t streams[LEAVES][GROUP], size_t here, const uint8_t *received, uint64_t offset, uint8_t *folded,
                       size_t stride, uint8_t *rest)
{
    for (size_t at = 0; at < here; at += 16 * V) {
        vec x[LEAVES], sum[5];
        UNROLL for (int leaf = 0; leaf < LEAVES; leaf++) x[leaf] = load(streams[leaf] + at);
        UNROLL for (int bit = 0; bit < 4; bit++) { /* leaves that differ in lower bits are one already */
            const int half = 8 >> bit;
            sum[bit] = x[1];
            UNROLL for (int i = 1; i < half; i++) sum[bit] ^= x[2 * i + 1];
            UNROLL for (int i = 0; i < half; i++) x[i] = x[2 * i] ^ x[2 * i + 1];
        }
        sum[4] = x[0];
        size_t size = here - at < 16 * V ? here - at : 16 * V;
        if (received) {
            vec x = pairs(0, 0);
            memcpy(&x, received + at, size == 16 * V ? 16 * V : size);
            UNROLL for (int bit = 0; bit < 4; bit++) sum[bit] ^= x & (0 - (offset >> bit & 1));
        }
        UNROLL for (int bit = 0; bit < 4; bit++) memcpy(folded + bit * stride + at, sum + bit, size == 16 * V ? 16 * V : size);
        memcpy(rest + at, sum + 4, size == 16 * V ? 16 * V : size);
    }
}

/* Bit-weighted XORs of the leaf streams, (128, width) at `stride`, and the XOR of all of each tree, (32, width). The streams are
   `given` (32, 16, width), or AES in counter mode from block `counter` under 512 schedules; `missing`: leaf 0 of each tree is 0.
   With what was `received` (32, width), it is added where the bit of delta is 1. */
KERNEL(fold)(const uint8_t *given, const uint8_t *schedules, uint64_t counter, int missing, size_t width, const uint8_t *received,
             const uint8_t *delta, uint8_t *folded, size_t stride, uint8_t *rest)
{
    uint8_t streams[LEAVES][GROUP];
    uint64_t count[GROUP / 8] = {0};
    keys k;
    for (size_t low = 0; low < width; low += GROUP) {
        for (size_t i = 0; i < GROUP / 16; i++) count[2 * i + 1] = __builtin_bswap64(counter + low / 16 + i);
        size_t here = width - low < GROUP ? width - low : GROUP;
        for (int tree = 0; tree < TREES; tree++) {
            for (int leaf = 0; leaf < LEAVES; leaf++) {
                size_t number = (size_t)(LEAVES * tree + leaf);
                if (missing && leaf == 0) memset(streams[0], 0, GROUP);
                else if (given) memcpy(streams[leaf], given + number * width + low, here);
                else {
                    load_keys(&k, schedules + 176 * number);
                    for (size_t i = 0; i < here; i += 16 * STEP) {
                        vec x[U];
                        EACH(j) x[j] = load((uint8_t *)count + i + 16 * V * j);
                        encrypt(x, &k);
                        EACH(j) store(streams[leaf] + i + 16 * V * j, x[j]);
                    }
                }
            }
            const uint8_t *heard = received ? received + (size_t)tree * width + low : NULL;
            uint64_t offset = received ? delta[tree / 2] >> 4 * (tree % 2) : 0;
            uint8_t *to = folded + 4 * (size_t)tree * stride + low, *whole = rest + (size_t)tree * width + low;
            fold_group((const uint8_t(*)[GROUP])streams, here, heard, offset, to, stride, whole);
        }
    }
    wipe(streams, sizeof streams);
    wipe(&k, sizeof k);
}

/* (n, width): bytes from `at` on of AES in counter mode under n schedules. */
KERNEL(streams)(const uint8_t *schedules, size_t n, uint64_t at, size_t width, uint8_t *out)
{
    keys k;
    uint8_t stage[16 * STEP];
    for (size_t i = 0; i < n; i++) {
        load_keys(&k, schedules + 176 * i);
        for (size_t made = 0, skip = at % 16; made < width; skip = 0) {
            size_t here = 16 * STEP - skip < width - made ? 16 * STEP - skip : width - made;
            uint64_t count[2 * STEP] = {0}, first = (at + made) / 16;
            for (int s = 0; s < STEP; s++) count[2 * s + 1] = __builtin_bswap64(first + (uint64_t)s);
            vec x[U];
            memcpy(x, count, sizeof x);
            encrypt(x, &k);
            memcpy(stage, x, sizeof x);
            memcpy(out + i * width + made, stage + skip, here);
            made += here;
        }
    }
    wipe(&k, sizeof k);
    wipe(stage, sizeof stage);
}

/* -- bits -------------------------------------------------------------------------------------------------------------------- */

typedef uint64_t four __attribute__((vector_size(32)));

#ifdef __clang__
#define FOUR(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define FOUR(a, b, ...) __builtin_shuffle(a, b, (four){__VA_ARGS__})
#endif

#define SWAPPED(a, b, d, mask) { four t = ((x[a] >> (d)) ^ x[b]) & (mask); x[b] ^= t; x[a] ^= t << (d); }

/* Three of the six steps that transpose 64 x 64 bits, four squares side by side: eight rows, `apart` rows from one to the next, whose
   bits are exchanged `far`, half and a quarter of it away. */
INLINE void swap_rows(four *rows, size_t apart, const int far, const uint64_t a, const uint64_t b, const uint64_t c)
{
    four x[8];
    UNROLL for (int i = 0; i < 8; i++) x[i] = rows[i * apart];
    UNROLL for (int i = 0; i < 4; i++) SWAPPED(i, i + 4, far, a)
    UNROLL for (int i = 0; i < 8; i += 4) { SWAPPED(i, i + 2, far / 2, b) SWAPPED(i + 1, i + 3, far / 2, b) }
    UNROLL for (int i = 0; i < 8; i += 2) SWAPPED(i, i + 1, far / 4, c)
    UNROLL for (int i = 0; i < 8; i++) rows[i * apart] = x[i];
}

INLINE void swap_squares(four *x)
{
    for (int i = 0; i < 8; i++) swap_rows(x + i, 8, 32, 0x00000000FFFFFFFFull, 0x0000FFFF0000FFFFull, 0x00FF00FF00FF00FFull);
    for (int i = 0; i < 64; i += 8) swap_rows(x + i, 1, 4, 0x0F0F0F0F0F0F0F0Full, 0x3333333333333333ull, 0x5555555555555555ull);
}

/* 64 bands of `rows` rows at `stride`, of which `here` bytes, at most 32, are taken: bit c of row r goes to bit r of row c of out. */
INLINE void transpose_strip(const uint8_t *in, size_t stride, size_t rows, size_t here, uint8_t *out)
{
    for (size_t band = 0; band < rows / 64; band += 2) {
        four x[2][64];
        size_t both = rows / 64 - band > 1;
        if (here < 32 || !both) memset(x, 0, sizeof x);
        for (size_t i = 0; i < 64 * (1 + both); i++) memcpy(x[0] + i, in + (64 * band + i) * stride, here == 32 ? 32 : here);
        swap_squares(x[0]);
        if (both) swap_squares(x[1]);
        uint8_t *to = out + 8 * band;
        size_t apart = rows / 8;
        if (here == 32 && both)
            for (size_t i = 0; i < 64; i++) {
                four even = FOUR(x[0][i], x[1][i], 0, 4, 2, 6), odd = FOUR(x[0][i], x[1][i], 1, 5, 3, 7);
                memcpy(to + i * apart, &even, 16);
                memcpy(to + (64 + i) * apart, &odd, 16);
                memcpy(to + (128 + i) * apart, (uint8_t *)&even + 16, 16);
                memcpy(to + (192 + i) * apart, (uint8_t *)&odd + 16, 16);
            }
        else for (size_t square = 0; square < here / 8; square++)
            for (size_t i = 0; i < 64; i++)
                for (size_t one = 0; one <= both; one++)
                    memcpy(to + (64 * square + i) * apart + 8 * one, (uint8_t *)(x[one] + i) + 8 * square, 8);
    }
}

#if defined(__GFNI__) && defined(__AVX512BW__)
#define ZIPPED(width, a, b) { __m512i x = a, y = b; a = _mm512_unpacklo_epi##width(x, y); b = _mm512_unpackhi_epi##width(x, y); }

/* As below, 128 rows of 64 bytes, in four lanes of 16: bytes of eight rows are brought together, one instruction turns their 8 x 8 bits,
   and four steps turn the 16 x 16 bytes that come of it. */
static void transpose_wide(const uint8_t *in, size_t stride, uint8_t *out)
{
    static const int place[8] = {0, 4, 2, 6, 1, 5, 3, 7};
    const __m512i units = _mm512_set1_epi64((long long)0x8040201008040201ull);
    __m512i turned[8][16];
    for (size_t eight = 0; eight < 16; eight++) {
        __m512i r[8];
        UNROLL for (size_t i = 0; i < 8; i++) r[i] = _mm512_loadu_si512(in + (8 * eight + 7 - i) * stride);
        UNROLL for (int i = 0; i < 8; i += 2) ZIPPED(8, r[i], r[i + 1])
        UNROLL for (int i = 0; i < 8; i += 4) { ZIPPED(16, r[i], r[i + 2]) ZIPPED(16, r[i + 1], r[i + 3]) }
        UNROLL for (int i = 0; i < 4; i++) ZIPPED(32, r[i], r[i + 4])
        UNROLL for (int i = 0; i < 8; i++) turned[i][eight] = _mm512_gf2p8affine_epi64_epi8(units, r[place[i]], 0);
    }
    for (size_t part = 0; part < 8; part++) {
        __m512i x[16], y[16];
        UNROLL for (int i = 0; i < 16; i++) x[i] = turned[part][i];
        UNROLL for (int step = 0; step < 4; step++) {
            UNROLL for (int i = 0; i < 16; i++) y[i] = x[i];
            UNROLL for (int i = 0; i < 8; i++) {
                x[2 * i] = _mm512_unpacklo_epi8(y[i], y[i + 8]);
                x[2 * i + 1] = _mm512_unpackhi_epi8(y[i], y[i + 8]);
            }
        }
        UNROLL for (size_t i = 0; i < 16; i += 4) {
            __m512i a = _mm512_shuffle_i64x2(x[i], x[i + 1], 0x88), b = _mm512_shuffle_i64x2(x[i], x[i + 1], 0xDD);
            __m512i c = _mm512_shuffle_i64x2(x[i + 2], x[i + 3], 0x88), d = _mm512_shuffle_i64x2(x[i + 2], x[i + 3], 0xDD);
            uint8_t *to = out + 16 * (16 * part + i);
            _mm512_storeu_si512(to, _mm512_shuffle_i64x2(a, c, 0x88));
            _mm512_storeu_si512(to + 2048, _mm512_shuffle_i64x2(b, d, 0x88));
            _mm512_storeu_si512(to + 4096, _mm512_shuffle_i64x2(a, c, 0xDD));
            _mm512_storeu_si512(to + 6144, _mm512_shuffle_i64x2(b, d, 0xDD));
        }
    }
}
#endif

/* (rows, width) bytes at `stride` to (8 * width, rows / 8) bytes: bit c of row r goes to bit r of row c. Rows in units of 64, width
   in units of 8. */
KERNEL(transpose)(const uint8_t *in, size_t stride, size_t rows, size_t width, uint8_t *out)
{
    size_t low = 0;
#if defined(__GFNI__) && defined(__AVX512BW__)
    for (; rows == 128 && width - low >= 64; low += 64) transpose_wide(in + low, stride, out + low * rows);
#endif
    for (; low < width; low += 32)
        transpose_strip(in + low, stride, rows, width - low < 32 ? width - low : 32, out + low * rows);
}

/* -- pads of one-of-n transfers ------------------------------------------------------------------------------------------------ */

/* x times X in GF(2^128), X^128 = X^7 + X^2 + X + 1. */
INLINE block doubled(block x)
{
    block top = x >> 63;
    return (x << 1) ^ (block){top[1] * 0x87, top[0]};
}

/* (n, bits) transfers to n keys: the sum of X^b times transfer b. */
INLINE void combine(const uint8_t *transfers, size_t n, size_t bits, uint8_t *out)
{
    for (size_t r = 0; r < n; r++) {
        block total = load_block(transfers + 16 * (r * bits + bits - 1));
        for (size_t bit = bits - 1; bit-- > 0;) total = doubled(total) ^ load_block(transfers + 16 * (r * bits + bit));
        store_block(out + 16 * r, total);
    }
}

/* What an entry's key is off that of entry 0: the sum of X^b times delta over the bits of its number, which is public. */
INLINE block offset_of(size_t value, const uint8_t *delta, size_t bits)
{
    block offset = {0, 0}, power = load_block(delta);
    for (size_t bit = 0; bit < bits; bit++, power = doubled(power))
        offset ^= power & (block){0 - (value >> bit & 1), 0 - (value >> bit & 1)};
    return offset;
}

/* All pads, (entries, n, words), from q (n, bits, 2). */
KERNEL(sender_pads)(const uint8_t *schedule, const uint8_t *q, const uint8_t *delta, size_t n, size_t bits, size_t entries,
                    size_t words, uint64_t first, uint64_t domain, uint64_t *out)
{
    keys k;
    uint8_t own[16 * TILE], inner[16 * TILE] = {0};
    uint64_t at[TILE] = {0}, blocks = (words + 1) / 2;
    load_keys(&k, schedule);
    for (size_t low = 0; low < n; low += TILE) {
        size_t here = n - low < TILE ? n - low : TILE;
        combine(q + 16 * low * bits, here, bits, own);
        for (size_t value = 0; value < entries; value++) {
            block offset = offset_of(value, delta, bits);
            for (size_t r = 0; r < here; r++) {
                store_block(inner + 16 * r, load_block(own + 16 * r) ^ offset);
                at[r] = first + (value * n + low + r) * blocks;
            }
            permute_tile(&k, inner, here);
            expand_tile(&k, inner, at, domain, here, words, out + (value * n + low) * words);
        }
    }
    wipe(own, sizeof own);
    wipe(inner, sizeof inner);
}

/* The pads of the choices (n,), (n, words), from t (n, bits, 2). */
KERNEL(chooser_pads)(const uint8_t *schedule, const uint8_t *t, const uint64_t *choices, size_t n, size_t bits, size_t words,
                     uint64_t first, uint64_t domain, uint64_t *out)
{
    keys k;
    uint8_t inner[16 * TILE] = {0};
    uint64_t at[TILE] = {0}, blocks = (words + 1) / 2;
    load_keys(&k, schedule);
    for (size_t low = 0; low < n; low += TILE) {
        size_t here = n - low < TILE ? n - low : TILE;
        combine(t + 16 * low * bits, here, bits, inner);
        for (size_t r = 0; r < here; r++) at[r] = first + (choices[low + r] * n + low + r) * blocks;
        permute_tile(&k, inner, here);
        expand_tile(&k, inner, at, domain, here, words, out + low * words);
    }
    wipe(inner, sizeof inner);
    wipe(at, sizeof at);
}

/* -- half gates ------------------------------------------------------------------------------------------------------------------ */

#ifdef __clang__
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, (vec){__VA_ARGS__})
#endif

#if V == 2
#define LOW_WORDS(x) SHUFFLED(x, x, 0, 0, 2, 2)
#define SWAPPED_WORDS(x) SHUFFLED(x, x, 1, 0, 3, 2)
#else
#define LOW_WORDS(x) SHUFFLED(x, x, 0, 0)
#define SWAPPED_WORDS(x) SHUFFLED(x, x, 1, 0)
#endif

/* Ones in each block whose colour, the lowest bit, is 1. */
INLINE vec colour(vec x) { return 0 - (LOW_WORDS(x) & 1); }

INLINE void load_step(vec *x, const uint8_t *from, size_t n)
{
    uint8_t rest[16 * STEP];
    if (n < STEP) {
        memset(rest, 0, sizeof rest);
        memcpy(rest, from, 16 * n);
        from = rest;
    }
    EACH(j) x[j] = load(from + 16 * V * j);
}

/* One step of AND gates: labels of 0 in, tables (STEP, 2, 2) and labels of 0 out. Tweaks count from tl and tr. */
static __attribute__((noinline)) void garble_step(const keys *k, vec delta, const vec *left, const vec *right, uint64_t tl,
                                                  uint64_t tr, uint64_t domain, uint8_t *tables, vec *out)
{
    vec t[U], x[U], g[U];
    tweaks(t, tl, 1, domain);
    EACH(j) x[j] = left[j];
    hash(x, t, k);
    EACH(j) { out[j] = x[j]; g[j] = x[j] ^ (colour(right[j]) & delta); x[j] = left[j] ^ delta; }
    hash(x, t, k);
    EACH(j) { g[j] ^= x[j]; out[j] ^= colour(left[j]) & g[j]; x[j] = right[j]; }
    tweaks(t, tr, 1, domain);
    hash(x, t, k);
    vec e[U];
    EACH(j) { e[j] = x[j]; out[j] ^= x[j]; x[j] = right[j] ^ delta; }
    hash(x, t, k);
    EACH(j) {
        e[j] ^= x[j];
        out[j] ^= colour(right[j]) & e[j];
        e[j] ^= left[j];
#if V == 2
        store(tables + 64 * j, SHUFFLED(g[j], e[j], 0, 1, 4, 5));
        store(tables + 64 * j + 32, SHUFFLED(g[j], e[j], 2, 3, 6, 7));
#else
        store(tables + 32 * j, g[j]);
        store(tables + 32 * j + 16, e[j]);
#endif
    }
}

static __attribute__((noinline)) void evaluate_step(const keys *k, const vec *left, const vec *right, uint64_t tl, uint64_t tr,
                                                    uint64_t domain, const uint8_t *tables, vec *out)
{
    vec t[U], x[U];
    tweaks(t, tl, 1, domain);
    EACH(j) x[j] = left[j];
    hash(x, t, k);
    EACH(j) { out[j] = x[j]; x[j] = right[j]; }
    tweaks(t, tr, 1, domain);
    hash(x, t, k);
    EACH(j) {
#if V == 2
        vec a = load(tables + 64 * j), b = load(tables + 64 * j + 32);
        vec g = SHUFFLED(a, b, 0, 1, 4, 5), e = SHUFFLED(a, b, 2, 3, 6, 7);
#else
        vec g = load(tables + 32 * j), e = load(tables + 32 * j + 16);
#endif
        out[j] ^= x[j] ^ (colour(left[j]) & g) ^ (colour(right[j]) & (e ^ left[j]));
    }
}

/* n AND gates on labels side by side. Tweaks of the left labels count from tl, those of the right from tr. delta NULL: evaluate. */
INLINE void and_lanes(const keys *k, const uint8_t *delta, vec d, const vec *l, const vec *r, size_t n, uint64_t tl, uint64_t tr,
                      uint64_t domain, uint8_t *tables, vec *o)
{
    uint8_t rest[32 * STEP];
    if (n == STEP) {
        if (delta) garble_step(k, d, l, r, tl, tr, domain, tables, o);
        else evaluate_step(k, l, r, tl, tr, domain, tables, o);
    } else if (delta) {
        garble_step(k, d, l, r, tl, tr, domain, rest, o);
        memcpy(tables, rest, 32 * n);
    } else {
        memset(rest, 0, sizeof rest);
        memcpy(rest, tables, 32 * n);
        evaluate_step(k, l, r, tl, tr, domain, rest, o);
    }
}

/* The label of 0 of a garbler's own bits: one bit of each of n numbers of `limbs` limbs. */
INLINE void own_step(vec *x, vec d, const uint64_t *values, size_t limbs, size_t bit, size_t n)
{
    uint64_t masks[2 * STEP] = {0};
    for (size_t i = 0; i < n; i++) masks[2 * i] = masks[2 * i + 1] = 0 - (values[i * limbs + bit / 64] >> bit % 64 & 1);
    EACH(j) x[j] = d & load((uint8_t *)masks + 16 * V * j);
}

/* `bits` AND gates one after the other over `lanes` lanes: carry := carry ^ ((left ^ carry) & (right ^ carry)), from carry (lanes, 2)
   or 0; gate b has left[b], right[b] of (bits, lanes, 2). Without `left` it is the garbler's own numbers (lanes, limbs), or for who
   evaluates 0. With bits 1 and no carry, an AND. The carries out of every bit go to `out`, `apart` bytes from bit to bit (0: the last
   alone is kept). Tables (bits, lanes, 4). Of one gate come the tweaks of the left labels of all lanes, then those of the right. */
static void chain(const keys *k, const uint8_t *delta, const uint8_t *left, const uint64_t *values, size_t limbs,
                  const uint8_t *right, const uint8_t *carry, size_t bits, size_t lanes, uint64_t first, uint64_t domain,
                  uint8_t *tables, uint8_t *out, size_t apart)
{
    vec d = delta ? spread(load_block(delta)) : pairs(0, 0), l[U], r[U], o[U];
    uint8_t own[16 * TILE];
    for (size_t strip = 0; strip < lanes; strip += TILE) { /* lanes that go through all bits together */
        size_t end = lanes - strip < TILE ? lanes : strip + TILE;
        memset(own, 0, sizeof own);
        if (carry) memcpy(own, carry + 16 * strip, 16 * (end - strip));
        for (size_t bit = 0; bit < bits; bit++) {
            for (size_t low = strip; low < end; low += STEP) {
                size_t here = end - low < STEP ? end - low : STEP, place = bit * lanes + low;
                uint64_t tl = first + 2 * bit * lanes + low;
                uint8_t *c = own + 16 * (low - strip);
                if (left) load_step(l, left + 16 * place, here);
                else if (delta) own_step(l, d, values + low * limbs, limbs, bit, here);
                else EACH(j) l[j] = pairs(0, 0);
                load_step(r, right + 16 * place, here);
                EACH(j) { vec x = load(c + 16 * V * j); l[j] ^= x; r[j] ^= x; }
                and_lanes(k, delta, d, l, r, here, tl, tl + lanes, domain, tables + 32 * place, o);
                EACH(j) store(c + 16 * V * j, load(c + 16 * V * j) ^ o[j]);
            }
            if (apart || bit + 1 == bits) memcpy(out + bit * apart + 16 * strip, own, 16 * (end - strip));
        }
    }
    wipe(own, sizeof own);
    wipe(l, sizeof l);
    wipe(r, sizeof r);
    wipe(o, sizeof o);
}

KERNEL(gates)(const uint8_t *schedule, const uint8_t *delta, const uint8_t *left, const uint8_t *right, const uint8_t *carry,
              size_t bits, size_t lanes, uint64_t first, uint64_t domain, uint8_t *tables, uint8_t *out, size_t apart)
{
    keys k;
    load_keys(&k, schedule);
    chain(&k, delta, left, NULL, 0, right, carry, bits, lanes, first, domain, tables, out, apart);
}

/* -- BLAKE2b (RFC 7693) of many short messages, one block each -------------------------------------------------------------------- */

static const uint64_t IV[8] = {0x6a09e667f3bcc908ull, 0xbb67ae8584caa73bull, 0x3c6ef372fe94f82bull, 0xa54ff53a5f1d36f1ull,
                               0x510e527fade682d1ull, 0x9b05688c2b3e6c1full, 0x1f83d9abfb41bd6bull, 0x5be0cd19137e2179ull};
static const uint8_t SIGMA[12][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3}};

#define ROTATED(x, n) (((x) >> (n)) | ((x) << (64 - (n))))
#define MIX(a, b, c, d, x, y) \
    a += b + (x); d = ROTATED(d ^ a, 32); c += d; b = ROTATED(b ^ c, 24); \
    a += b + (y); d = ROTATED(d ^ a, 16); c += d; b = ROTATED(b ^ c, 63);

/* Digests of `out_words` words of n messages of 8 words and a number each (72 bytes), four at a time. `parameters`: the first
   block of BLAKE2b, 64 bytes. */
KERNEL(blake2b_rows)(const uint64_t *rows, const uint64_t *numbers, size_t n, const uint64_t *parameters, size_t out_words,
                     uint64_t *out)
{
    for (size_t low = 0; low < n; low += 4) {
        four m[16] = {{0}}, h[8], v[16];
        size_t here = n - low < 4 ? n - low : 4;
        for (size_t r = 0; r < here; r++) {
            for (int i = 0; i < 8; i++) m[i][r] = rows[8 * (low + r) + (size_t)i];
            m[8][r] = numbers[low + r];
        }
        for (int i = 0; i < 8; i++) {
            uint64_t x = IV[i] ^ parameters[i];
            h[i] = v[i] = (four){x, x, x, x};
            v[i + 8] = (four){IV[i], IV[i], IV[i], IV[i]};
        }
        v[12] ^= (four){72, 72, 72, 72};
        v[14] = ~v[14];
        _Pragma("GCC unroll 12") for (int r = 0; r < 12; r++) {
            const uint8_t *s = SIGMA[r];
            MIX(v[0], v[4], v[8], v[12], m[s[0]], m[s[1]]) MIX(v[1], v[5], v[9], v[13], m[s[2]], m[s[3]])
            MIX(v[2], v[6], v[10], v[14], m[s[4]], m[s[5]]) MIX(v[3], v[7], v[11], v[15], m[s[6]], m[s[7]])
            MIX(v[0], v[5], v[10], v[15], m[s[8]], m[s[9]]) MIX(v[1], v[6], v[11], v[12], m[s[10]], m[s[11]])
            MIX(v[2], v[7], v[8], v[13], m[s[12]], m[s[13]]) MIX(v[3], v[4], v[9], v[14], m[s[14]], m[s[15]])
        }
        for (int i = 0; i < 8; i++) h[i] ^= v[i] ^ v[i + 8];
        for (size_t r = 0; r < here; r++)
            for (size_t w = 0; w < out_words; w++) out[out_words * (low + r) + w] = h[w][r];
    }
}

/* -- GHASH ---------------------------------------------------------------------------------------------------------------------- */

/* The product of two polynomials over GF(2) of degree below 64, low and high word. */
#if defined(PORTABLE)
INLINE uint64_t low_product(uint64_t x, uint64_t y) /* every fourth bit at a time: carries end in the holes between */
{
    const uint64_t m = 0x1111111111111111ull;
    uint64_t total = 0;
    for (int at = 0; at < 4; at++) {
        uint64_t part = 0;
        for (int i = 0; i < 4; i++) part ^= (x & m << i) * (y & m << ((at - i) & 3));
        total |= part & m << at;
    }
    return total;
}

INLINE uint64_t mirrored(uint64_t x)
{
    x = (x >> 1 & 0x5555555555555555ull) | (x & 0x5555555555555555ull) << 1;
    x = (x >> 2 & 0x3333333333333333ull) | (x & 0x3333333333333333ull) << 2;
    x = (x >> 4 & 0x0F0F0F0F0F0F0F0Full) | (x & 0x0F0F0F0F0F0F0F0Full) << 4;
    return __builtin_bswap64(x);
}

INLINE block product(uint64_t x, uint64_t y)
{
    return (block){low_product(x, y), mirrored(low_product(mirrored(x), mirrored(y))) >> 1};
}
#elif defined(ARM_AES)
INLINE block product(uint64_t x, uint64_t y) { return (block)vmull_p64((poly64_t)x, (poly64_t)y); }
#endif
#if defined(PORTABLE) || defined(ARM_AES)
#define PRODUCT(x, i, y, j) product((x)[i], (y)[j])
#elif V == 2
#define PRODUCT(x, i, y, j) (vec)_mm256_clmulepi64_epi128((__m256i)(x), (__m256i)(y), (i) | (j) << 4)
#else
#define PRODUCT(x, i, y, j) (block)_mm_clmulepi64_si128((__m128i)(x), (__m128i)(y), (i) | (j) << 4)
#endif

/* Elements of GF(2^128) as GCM writes them, the two words swapped: word 1 holds the first eight bytes, big-endian. */
INLINE vec elements(const uint8_t *from)
{
#if defined(PORTABLE) || defined(ARM_AES)
    vec x = load(from);
    return (vec){__builtin_bswap64(x[1]), __builtin_bswap64(x[0])};
#elif V == 2
    const __m128i turned = _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return (vec)_mm256_shuffle_epi8((__m256i)load(from), _mm256_broadcastsi128_si256(turned));
#else
    return (vec)_mm_shuffle_epi8((__m128i)load(from), _mm_set_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
#endif
}

INLINE block written(block x) { return (block){__builtin_bswap64(x[1]), __builtin_bswap64(x[0])}; }

/* Bits count from the top: the product is one place short, and its low half is what is too much. */
INLINE block reduced(uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    d = d << 1 | c >> 63;
    c = c << 1 | b >> 63;
    b = b << 1 | a >> 63;
    a <<= 1;
    b ^= a << 63 ^ a << 62 ^ a << 57;
    c ^= a ^ a >> 1 ^ a >> 2 ^ a >> 7;
    c ^= b << 63 ^ b << 62 ^ b << 57;
    d ^= b ^ b >> 1 ^ b >> 2 ^ b >> 7;
    return (block){c, d};
}

#define AHEAD 16 /* products that are reduced together */

/* total * h^AHEAD + the sum of block i of `data` times h^(AHEAD - i); powers from h^AHEAD down, then the sums of their words (three
   products in place of four: Karatsuba). */
INLINE block summed(const uint8_t *data, block total, const uint8_t *powers)
{
    vec low = pairs(0, 0), middle = low, high = low, before = low;
    memcpy(&before, &total, 16);
    UNROLL for (int i = 0; i < AHEAD / V; i++) {
        vec x = i ? elements(data + 16 * V * i) : elements(data) ^ before, y = load(powers + 16 * V * i);
        vec x_sum = x ^ SWAPPED_WORDS(x), y_sum = load(powers + 16 * AHEAD + 16 * V * i);
        low ^= PRODUCT(x, 0, y, 0);
        middle ^= PRODUCT(x_sum, 0, y_sum, 0);
        high ^= PRODUCT(x, 1, y, 1);
    }
    middle ^= low ^ high;
#if V == 2
    low ^= SHUFFLED(low, low, 2, 3, 0, 1);
    middle ^= SHUFFLED(middle, middle, 2, 3, 0, 1);
    high ^= SHUFFLED(high, high, 2, 3, 0, 1);
#endif
    return reduced(low[0], low[1] ^ middle[0], high[0] ^ middle[1], high[1]);
}

/* (n, 16): of each row of `width` bytes at `stride`, padded with zeros to b blocks, the sum of block i times h^(b + 2 - i). */
KERNEL(ghash)(const uint8_t *h, const uint8_t *rows, size_t stride, size_t n, size_t width, uint8_t *out)
{
    uint8_t powers[32 * AHEAD] = {0}, last[16 * AHEAD];
    block power = written(load_block(h));
    for (int i = AHEAD - 1; i >= 0; i--) {
        store_block(powers + 16 * i, power);
        store_block(powers + 16 * (AHEAD + i), power ^ (block){power[1], power[0]});
        memset(last, 0, sizeof last);
        store_block(last + 16 * (AHEAD - 1), written(power)); /* the next: this one times h */
        power = summed(last, (block){0, 0}, powers);
    }
    for (size_t r = 0; r < n; r++) {
        const uint8_t *row = rows + r * stride;
        block total = {0, 0};
        size_t low = 0;
        for (; width - low >= 16 * AHEAD; low += 16 * AHEAD) total = summed(row + low, total, powers);
        if (low < width) { /* what is left stands last, zeros before it */
            uint8_t *from = last + 16 * (AHEAD - (width - low + 15) / 16);
            memset(last, 0, sizeof last);
            memcpy(from, row + low, width - low);
            store_block(from, load_block(from) ^ written(total));
            total = summed(last, (block){0, 0}, powers);
        }
        memset(last, 0, sizeof last);
        store_block(last + 16 * (AHEAD - 1), written(total));
        store_block(out + 16 * r, written(summed(last, (block){0, 0}, powers)));
    }
}

#include "scores.h"
#include "rows.h"
#include "keyed.h"
