/* The kernels, compiled once per instruction set (-DISA=...). Each computes, byte for byte, what the numpy code beside its caller
   computes; tests/kernels holds both to that. `blindbayes.kernels` has checked every array and length before a call. Scratch
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
            block offset = {0, 0}, power = load_block(delta);
            for (size_t bit = 0; bit < bits; bit++, power = doubled(power))
                offset ^= power & (block){0 - (value >> bit & 1), 0 - (value >> bit & 1)}; /* public: the entry's number */
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

/* -- sums by class ------------------------------------------------------------------------------------------------------------- */

#define BUFFER 2048 /* words of pads at once; no row has more */

/* Expands seeds (n, 2) into rows of words, block b of row r with the tweak first + r * blocks + b; adds them to rows (n, words) and
   takes them off total (words,), or with `minus` the other way round. */
KERNEL(accumulate)(const uint8_t *schedule, const uint8_t *seeds, uint64_t first, uint64_t domain, size_t n, size_t words,
                   int minus, uint64_t *rows, uint64_t *total)
{
    keys k;
    uint8_t inner[16 * TILE] = {0};
    uint64_t at[TILE] = {0}, pads[BUFFER], sum[BUFFER] = {0}, blocks = (words + 1) / 2;
    size_t some = BUFFER / words / STEP * STEP, each = some > TILE ? TILE : some ? some : 1;
    load_keys(&k, schedule);
    for (size_t low = 0; low < n; low += each) {
        size_t here = n - low < each ? n - low : each;
        memcpy(inner, seeds + 16 * low, 16 * here);
        permute_tile(&k, inner, here);
        for (size_t r = 0; r < here; r++) at[r] = first + (low + r) * blocks;
        expand_tile(&k, inner, at, domain, here, words, pads);
        uint64_t *to = rows + low * words;
        if (minus) for (size_t i = 0; i < here * words; i++) to[i] -= pads[i];
        else for (size_t i = 0; i < here * words; i++) to[i] += pads[i];
        for (size_t r = 0; r < here; r++)
            for (size_t w = 0; w < words; w++) sum[w] += pads[r * words + w];
    }
    for (size_t w = 0; w < words; w++) total[w] += minus ? sum[w] : 0 - sum[w];
    wipe(inner, sizeof inner);
    wipe(pads, sizeof pads);
}

/* share[class of the row] += row, for rows (n, words) and share (classes, words): the same steps whatever the classes are. */
KERNEL(add_by_class)(const uint64_t *rows, const int64_t *own, size_t n, size_t words, size_t classes, uint64_t *share)
{
    for (size_t r = 0; r < n; r++)
        for (size_t label = 0; label < classes; label++) {
            uint64_t mask = (uint64_t)own[r] ^ label;
            mask = ((mask | (0 - mask)) >> 63) - 1; /* ones if equal */
            for (size_t w = 0; w < words; w++) share[label * words + w] += rows[r * words + w] & mask;
        }
}

/* -- half gates ------------------------------------------------------------------------------------------------------------------ */

#ifdef __clang__
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLED(a, b, ...) __builtin_shuffle(a, b, (vec){__VA_ARGS__})
#endif

#if V == 2
#define LOW_WORDS(x) SHUFFLED(x, x, 0, 0, 2, 2)
#else
#define LOW_WORDS(x) SHUFFLED(x, x, 0, 0)
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
#else
INLINE block product(uint64_t x, uint64_t y)
{
    return (block)_mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)x), _mm_cvtsi64_si128((long long)y), 0);
}
#endif

/* Elements of GF(2^128) as GCM writes them, the two words swapped: word 1 holds the first eight bytes, big-endian. */
INLINE block element(const uint8_t *from)
{
    uint64_t x[2];
    memcpy(x, from, 16);
    return (block){__builtin_bswap64(x[1]), __builtin_bswap64(x[0])};
}

typedef struct { block low, middle, high; } wide;

INLINE void add_product(wide *sum, block x, block y)
{
    sum->low ^= product(x[0], y[0]);
    sum->middle ^= product(x[0], y[1]) ^ product(x[1], y[0]);
    sum->high ^= product(x[1], y[1]);
}

/* Bits count from the top: the product is one place short, and its low half is what is too much. */
INLINE block reduced(const wide *sum)
{
    uint64_t a = sum->low[0], b = sum->low[1] ^ sum->middle[0], c = sum->high[0] ^ sum->middle[1], d = sum->high[1];
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

#define AHEAD 8 /* products that are reduced together */

/* (n, 16): of each row of `width` bytes at `stride`, padded with zeros to b blocks, the sum of block i times h^(b + 2 - i). */
KERNEL(ghash)(const uint8_t *h, const uint8_t *rows, size_t stride, size_t n, size_t width, uint8_t *out)
{
    block powers[AHEAD + 1];
    powers[1] = element(h);
    for (int i = 2; i <= AHEAD; i++) {
        wide sum = {{0}, {0}, {0}};
        add_product(&sum, powers[i - 1], powers[1]);
        powers[i] = reduced(&sum);
    }
    for (size_t r = 0; r < n; r++) {
        const uint8_t *row = rows + r * stride;
        block total = {0, 0};
        for (size_t low = 0; low < width;) {
            size_t left = (width - low + 15) / 16, some = left < AHEAD ? left : AHEAD;
            wide sum = {{0}, {0}, {0}};
            for (size_t i = 0; i < some; i++, low += 16) {
                uint8_t last[16] = {0};
                if (width - low < 16) memcpy(last, row + low, width - low);
                block x = element(width - low < 16 ? last : row + low);
                add_product(&sum, i ? x : x ^ total, powers[some - i]);
            }
            total = reduced(&sum);
        }
        wide sum = {{0}, {0}, {0}};
        add_product(&sum, total, powers[1]);
        total = reduced(&sum);
        uint64_t bytes[2] = {__builtin_bswap64(total[1]), __builtin_bswap64(total[0])};
        memcpy(out + 16 * r, bytes, 16);
    }
}

#include "scores.h"
