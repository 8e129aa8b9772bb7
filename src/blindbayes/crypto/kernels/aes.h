/* Vectors of 128-bit blocks, and AES on a step of them, for the instruction set that the compiler was asked for.

   A block is 16 bytes, two little-endian words. `vec` holds V blocks; a step is U vectors, enough to hide the latency of an AES
   round. Nothing here or in lanes.c branches on a secret or reads a table at a secret place: where there are no AES instructions
   the S-box is a circuit over bit planes. */
#ifndef BLINDBAYES_AES_H
#define BLINDBAYES_AES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__VAES__) && defined(__AVX2__)
#include <immintrin.h>
#define V 2
#define U 8
#elif defined(__AES__)
#include <immintrin.h>
#define V 1
#define U 8
#elif defined(__aarch64__) && (defined(__ARM_FEATURE_AES) || defined(__ARM_FEATURE_CRYPTO))
#include <arm_neon.h>
#define ARM_AES
#define V 1
#define U 8
#else
#define PORTABLE
#define V 1
#define U 16
#endif

#define STEP (U * V) /* blocks per step */
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")
#define EACH(j) UNROLL for (int j = 0; j < U; j++)

typedef uint64_t vec __attribute__((vector_size(16 * V)));
typedef uint64_t block __attribute__((vector_size(16)));

INLINE vec load(const void *from) { vec x; memcpy(&x, from, sizeof x); return x; }
INLINE void store(void *to, vec x) { memcpy(to, &x, sizeof x); }
INLINE block load_block(const void *from) { block x; memcpy(&x, from, sizeof x); return x; }
INLINE void store_block(void *to, block x) { memcpy(to, &x, sizeof x); }

/* Memory that held a secret. What the compiler keeps in registers, or spills, is out of reach. */
INLINE void wipe(void *from, size_t size)
{
    memset(from, 0, size);
    __asm__ volatile("" : : "r"(from) : "memory");
}

#if V == 2
INLINE vec spread(block x) { return (vec){x[0], x[1], x[0], x[1]}; }
INLINE vec ramp(uint64_t first, uint64_t step, uint64_t domain) { return (vec){first, domain, first + step, domain}; }
INLINE vec indexed(const uint64_t *index, uint64_t domain) { return (vec){index[0], domain, index[1], domain}; }
INLINE vec pairs(uint64_t low, uint64_t high) { return (vec){low, high, low, high}; }
#else
INLINE vec spread(block x) { return x; }
INLINE vec ramp(uint64_t first, uint64_t step, uint64_t domain) { (void)step; return (vec){first, domain}; }
INLINE vec indexed(const uint64_t *index, uint64_t domain) { return (vec){index[0], domain}; }
INLINE vec pairs(uint64_t low, uint64_t high) { return (vec){low, high}; }
#endif

/* Tweaks of a step of consecutive blocks. */
INLINE void tweaks(vec *t, uint64_t first, uint64_t step, uint64_t domain)
{
    vec by = pairs(V * step, 0);
    t[0] = ramp(first, step, domain);
    UNROLL for (int j = 1; j < U; j++) t[j] = t[j - 1] + by;
}

#ifndef PORTABLE

typedef struct { vec k[11]; } keys;

INLINE void load_keys(keys *k, const uint8_t *schedule)
{
    for (int r = 0; r < 11; r++) k->k[r] = spread(load_block(schedule + 16 * r));
}

#ifdef ARM_AES
#define ROUND(x, k, r) x = (vec)vaesmcq_u8(vaeseq_u8((uint8x16_t)(x), (uint8x16_t)(k)->k[r]))
#define LAST(x, k) x = (vec)vaeseq_u8((uint8x16_t)(x), (uint8x16_t)(k)->k[9]) ^ (k)->k[10]
#elif V == 2
#define ROUND(x, k, r) x = (vec)_mm256_aesenc_epi128((__m256i)(x), (__m256i)(k)->k[r])
#define LAST(x, k) x = (vec)_mm256_aesenclast_epi128((__m256i)(x), (__m256i)(k)->k[10])
#else
#define ROUND(x, k, r) x = (vec)_mm_aesenc_si128((__m128i)(x), (__m128i)(k)->k[r])
#define LAST(x, k) x = (vec)_mm_aesenclast_si128((__m128i)(x), (__m128i)(k)->k[10])
#endif

/* x := AES(x), n <= U vectors, n constant. */
INLINE void encrypt_few(vec *x, const keys *k, const int n)
{
#ifdef ARM_AES
    UNROLL for (int r = 0; r < 9; r++) UNROLL for (int j = 0; j < n; j++) ROUND(x[j], k, r);
#else
    UNROLL for (int j = 0; j < n; j++) x[j] ^= k->k[0];
    UNROLL for (int r = 1; r < 10; r++) UNROLL for (int j = 0; j < n; j++) ROUND(x[j], k, r);
#endif
    UNROLL for (int j = 0; j < n; j++) LAST(x[j], k);
}

INLINE void encrypt(vec *x, const keys *k) { encrypt_few(x, k, U); }

/* SubWord by the last AES round: with four equal columns its ShiftRows moves nothing. */
INLINE uint32_t sub_word(uint32_t w)
{
#ifdef ARM_AES
    return vgetq_lane_u32(vreinterpretq_u32_u8(vaeseq_u8(vreinterpretq_u8_u32(vdupq_n_u32(w)), vdupq_n_u8(0))), 0);
#else
    return (uint32_t)_mm_cvtsi128_si32(_mm_aesenclast_si128(_mm_set1_epi32((int)w), _mm_setzero_si128()));
#endif
}

#else /* bit planes */

/* 16 blocks at once: plane p has bit p of every byte. A word is 4 groups of 4 blocks; within a group, bit
   8 * (byte / 2) + 2 * block + byte % 2. So a column of the state is 16 bits: ShiftRows turns words, MixColumns turns columns. */
typedef uint64_t word __attribute__((vector_size(32)));
typedef struct { word k[11][8]; } keys;

/* The S-box on planes, lowest bit first: the circuit of Boyar and Peralta (A depth-16 circuit for the AES S-box, 2011). */
INLINE void sub_planes(word *q)
{
    word x0 = q[7], x1 = q[6], x2 = q[5], x3 = q[4], x4 = q[3], x5 = q[2], x6 = q[1], x7 = q[0];
    word y14 = x3 ^ x5, y13 = x0 ^ x6, y9 = x0 ^ x3, y8 = x0 ^ x5, t0 = x1 ^ x2, y1 = t0 ^ x7, y4 = y1 ^ x3, y12 = y13 ^ y14;
    word y2 = y1 ^ x0, y5 = y1 ^ x6, y3 = y5 ^ y8, t1 = x4 ^ y12, y15 = t1 ^ x5, y20 = t1 ^ x1, y6 = y15 ^ x7, y10 = y15 ^ t0;
    word y11 = y20 ^ y9, y7 = x7 ^ y11, y17 = y10 ^ y11, y19 = y10 ^ y8, y16 = t0 ^ y11, y21 = y13 ^ y16, y18 = x0 ^ y16;
    word t2 = y12 & y15, t4 = (y3 & y6) ^ t2, t6 = (y4 & x7) ^ t2, t7 = y13 & y16, t9 = (y5 & y1) ^ t7, t11 = (y2 & y7) ^ t7;
    word t12 = y9 & y11, t14 = (y14 & y17) ^ t12, t16 = (y8 & y10) ^ t12;
    word t21 = t4 ^ t14 ^ y20, t22 = t6 ^ t16 ^ y19, t23 = t9 ^ t14 ^ y21, t24 = t11 ^ t16 ^ y18;
    word t25 = t21 ^ t22, t26 = t21 & t23, t27 = t24 ^ t26, t29 = (t25 & t27) ^ t22, t30 = t23 ^ t24, t31 = t22 ^ t26;
    word t33 = (t31 & t30) ^ t24, t34 = t23 ^ t33, t35 = t27 ^ t33, t36 = t24 & t35, t37 = t36 ^ t34, t38 = t27 ^ t36;
    word t40 = t25 ^ (t29 & t38), t41 = t40 ^ t37, t42 = t29 ^ t33, t43 = t29 ^ t40, t44 = t33 ^ t37, t45 = t42 ^ t41;
    word z0 = t44 & y15, z1 = t37 & y6, z2 = t33 & x7, z3 = t43 & y16, z4 = t40 & y1, z5 = t29 & y7, z6 = t42 & y11;
    word z7 = t45 & y17, z8 = t41 & y10, z9 = t44 & y12, z10 = t37 & y3, z11 = t33 & y4, z12 = t43 & y13, z13 = t40 & y5;
    word z14 = t29 & y2, z15 = t42 & y9, z16 = t45 & y14, z17 = t41 & y8;
    word t46 = z15 ^ z16, t47 = z10 ^ z11, t48 = z5 ^ z13, t49 = z9 ^ z10, t50 = z2 ^ z12, t51 = z2 ^ z5, t52 = z7 ^ z8;
    word t53 = z0 ^ z3, t54 = z6 ^ z7, t55 = z16 ^ z17, t56 = z12 ^ t48, t57 = t50 ^ t53, t58 = z4 ^ t46, t59 = z3 ^ t54;
    word t60 = t46 ^ t57, t61 = z14 ^ t57, t62 = t52 ^ t58, t63 = t49 ^ t58, t64 = z4 ^ t59, t65 = t61 ^ t62, t66 = z1 ^ t63;
    word t67 = t64 ^ t65, s3 = t53 ^ t66;
    q[7] = t59 ^ t63; q[6] = t64 ^ ~s3; q[5] = t55 ^ ~t67; q[4] = s3;
    q[3] = t51 ^ t66; q[2] = t47 ^ t65; q[1] = t56 ^ ~t62; q[0] = t48 ^ ~t60;
}

#define TURN(x, n) (((x) >> (n)) | ((x) << (64 - (n))))
INLINE word shift_rows(word x)
{
    return (x & 0x0055005500550055ull) | (TURN(x, 16) & 0x00AA00AA00AA00AAull) | (TURN(x, 32) & 0x5500550055005500ull) |
           (TURN(x, 48) & 0xAA00AA00AA00AA00ull);
}

/* The byte of the next row, and of the one after it, of the same column. */
INLINE word next_row(word x)
{
    return ((x >> 1) & 0x5555555555555555ull) | ((x >> 7) & 0x00AA00AA00AA00AAull) | ((x << 9) & 0xAA00AA00AA00AA00ull);
}
INLINE word second_row(word x) { return ((x >> 8) & 0x00FF00FF00FF00FFull) | ((x << 8) & 0xFF00FF00FF00FF00ull); }

INLINE void mix_columns(word *q)
{
    word a[8];
    UNROLL for (int p = 0; p < 8; p++) a[p] = q[p] ^ next_row(q[p]); /* a_r ^ a_(r+1) */
    UNROLL for (int p = 0; p < 8; p++) {
        word doubled = p ? a[p - 1] : a[7];
        if (p == 1 || p == 3 || p == 4) doubled ^= a[7];
        q[p] = doubled ^ next_row(q[p]) ^ second_row(a[p]);
    }
}

/* 8 x 8 bits in each word, and 8 x 8 bytes between words. */
INLINE void swap_bits(word *x)
{
    static const uint64_t masks[3] = {0x00AA00AA00AA00AAull, 0x0000CCCC0000CCCCull, 0x00000000F0F0F0F0ull};
    UNROLL for (int i = 0; i < 3; i++) {
        word t = ((*x >> (7 << i)) ^ *x) & masks[i];
        *x ^= t ^ (t << (7 << i));
    }
}

INLINE void swap_bytes(word *x)
{
    static const uint64_t masks[3] = {0x00FF00FF00FF00FFull, 0x0000FFFF0000FFFFull, 0x00000000FFFFFFFFull};
    UNROLL for (int i = 0; i < 3; i++)
        UNROLL for (int j = 0; j < 8; j++)
            if (!(j >> i & 1)) {
                word t = ((x[j] >> (8 << i)) ^ x[j + (1 << i)]) & masks[i];
                x[j + (1 << i)] ^= t;
                x[j] ^= t << (8 << i);
            }
}

/* Block b of group g, 16 * (4 * g + b) bytes from the start, to planes and back. */
INLINE void to_planes(word *q, const uint8_t *in)
{
    uint16_t from[4][4][8], to[8][4][4];
    memcpy(from, in, sizeof from);
    for (int i = 0; i < 8; i++)
        for (int g = 0; g < 4; g++)
            for (int b = 0; b < 4; b++) to[i][g][b] = from[g][b][i];
    memcpy(q, to, sizeof to);
    UNROLL for (int i = 0; i < 8; i++) swap_bits(q + i);
    swap_bytes(q);
}

INLINE void from_planes(word *q, uint8_t *out)
{
    uint16_t from[8][4][4], to[4][4][8];
    swap_bytes(q);
    UNROLL for (int i = 0; i < 8; i++) swap_bits(q + i);
    memcpy(from, q, sizeof from);
    for (int i = 0; i < 8; i++)
        for (int g = 0; g < 4; g++)
            for (int b = 0; b < 4; b++) to[g][b][i] = from[i][g][b];
    memcpy(out, to, sizeof to);
}

static __attribute__((noinline)) void load_keys(keys *k, const uint8_t *schedule)
{
    for (int r = 0; r < 11; r++) {
        uint8_t same[256];
        for (int b = 0; b < 16; b++) memcpy(same + 16 * b, schedule + 16 * r, 16);
        to_planes(k->k[r], same);
        wipe(same, sizeof same);
    }
}

static __attribute__((noinline)) void encrypt(vec *x, const keys *k)
{
    word q[8];
    to_planes(q, (const uint8_t *)x);
    for (int p = 0; p < 8; p++) q[p] ^= k->k[0][p];
    for (int r = 1; r < 11; r++) {
        sub_planes(q);
        for (int p = 0; p < 8; p++) q[p] = shift_rows(q[p]);
        if (r < 10) mix_columns(q);
        for (int p = 0; p < 8; p++) q[p] ^= k->k[r][p];
    }
    from_planes(q, (uint8_t *)x);
}

static uint32_t sub_word(uint32_t w)
{
    uint8_t bytes[256] = {0};
    word q[8];
    memcpy(bytes, &w, 4);
    to_planes(q, bytes);
    sub_planes(q);
    from_planes(q, bytes);
    memcpy(&w, bytes, 4);
    wipe(bytes, sizeof bytes);
    return w;
}

#endif

/* x := TMMO(x, tweak) = P(P(x) ^ tweak) ^ P(x), a step. */
INLINE void hash(vec *x, const vec *tweak, const keys *k)
{
    vec p[U];
    encrypt(x, k);
    EACH(j) { p[j] = x[j]; x[j] ^= tweak[j]; }
    encrypt(x, k);
    EACH(j) x[j] ^= p[j];
}

#endif
