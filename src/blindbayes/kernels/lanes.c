/* The kernels, compiled once per instruction set (-DISA=...). Each computes, byte for byte, what the numpy code beside its caller
   computes; tests/kernels holds both to that. `blindbayes.kernels` has checked every array and length before a call. Scratch
   lies on the stack, in tiles, and is wiped where it held keys. Offsets count bytes, sizes of arrays are in comments as
   (rows, ...). `schedule` is an expanded AES-128 key, 11 x 16 bytes. */
#include "aes.h"

#define GLUE(name, isa) name##_##isa
#define NAMED(name, isa) GLUE(name, isa)
#define KERNEL(name) __attribute__((visibility("default"))) void NAMED(name, ISA)

#define TILE 64 /* rows at once; a multiple of STEP */

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
                pads_of_row(k, load_block(inner + 16 * r), firsts[r] + from, domain, (part + V - 1) / V, (uint8_t *)stage);
                memcpy(out + r * words + 2 * from, stage, 8 * (left < 2 * part ? left : 2 * part));
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
INLINE void fold_group(uint64_t streams[LEAVES][GROUP / 8], size_t here, uint8_t *folded, size_t stride, uint8_t *rest)
{
    uint64_t sum[GROUP / 8];
    for (int bit = 3; bit >= 0; bit--) {
        int half = 1 << bit;
        memcpy(sum, streams[half], GROUP);
        for (int leaf = half + 1; leaf < 2 * half; leaf++)
            for (int i = 0; i < GROUP / 8; i++) sum[i] ^= streams[leaf][i];
        memcpy(folded + bit * stride, sum, here);
        for (int leaf = 0; leaf < half; leaf++)
            for (int i = 0; i < GROUP / 8; i++) streams[leaf][i] ^= streams[half + leaf][i];
    }
    memcpy(rest, streams[0], here);
}

/* Bit-weighted XORs of the leaf streams, (128, width) at `stride`, and the XOR of all of each tree, (32, width). The streams are
   `given` (32, 16, width), or AES in counter mode from block `counter` under 512 schedules; `missing`: leaf 0 of each tree is 0. */
KERNEL(fold)(const uint8_t *given, const uint8_t *schedules, uint64_t counter, int missing, size_t width, uint8_t *folded,
             size_t stride, uint8_t *rest)
{
    uint64_t streams[LEAVES][GROUP / 8];
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
                        EACH(j) store((uint8_t *)streams[leaf] + i + 16 * V * j, x[j]);
                    }
                }
            }
            fold_group(streams, here, folded + 4 * (size_t)tree * stride + low, stride, rest + (size_t)tree * width + low);
        }
    }
    wipe(streams, sizeof streams);
    wipe(&k, sizeof k);
}

/* -- bits -------------------------------------------------------------------------------------------------------------------- */

typedef uint64_t four __attribute__((vector_size(32)));

/* Transposes 64 x 64 bits, four squares side by side. */
INLINE void swap_squares(four *x)
{
    uint64_t mask = 0x00000000FFFFFFFFull;
    UNROLL for (int d = 32; d; d >>= 1, mask ^= mask << d)
        for (int i = 0; i < 64; i = ((i | d) + 1) & ~d) {
            four t = ((x[i] >> d) ^ x[i + d]) & mask;
            x[i + d] ^= t;
            x[i] ^= t << d;
        }
}

/* (rows, width) bytes at `stride` to (8 * width, rows / 8) bytes: bit c of row r goes to bit r of row c. Rows in units of 64, width
   in units of 8. */
KERNEL(transpose)(const uint8_t *in, size_t stride, size_t rows, size_t width, uint8_t *out)
{
    for (size_t low = 0; low < width; low += 32) {
        size_t here = width - low < 32 ? width - low : 32;
        for (size_t band = 0; band < rows / 64; band++) {
            four x[64];
            if (here < 32) memset(x, 0, sizeof x);
            for (size_t i = 0; i < 64; i++) memcpy(x + i, in + (64 * band + i) * stride + low, here == 32 ? 32 : here);
            swap_squares(x);
            for (size_t square = 0; square < here / 8; square++)
                for (size_t i = 0; i < 64; i++)
                    memcpy(out + (8 * low + 64 * square + i) * (rows / 8) + 8 * band, (const uint8_t *)(x + i) + 8 * square, 8);
        }
    }
}
