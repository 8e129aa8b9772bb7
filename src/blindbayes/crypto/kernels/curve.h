/* Included by words.c. X25519 of one private key with many public ones, eight at a time, where the processor multiplies 52-bit
   words (AVX-512 IFMA). Five limbs of 51 bits; every result below has limbs under 2^51 + 2^15, as the multiplier takes 52. */
#if defined(__x86_64__) && (defined(__clang__) || __GNUC__ >= 9)
#include <immintrin.h>

#define IFMA __attribute__((target("avx512f,avx512ifma")))
#define INLINED static inline __attribute__((always_inline)) IFMA
typedef __m512i lanes;
typedef struct { lanes v[5]; } fe; /* eight elements modulo 2^255 - 19 */

INLINED lanes same(uint64_t x) { return _mm512_set1_epi64((long long)x); }
INLINED lanes times19(lanes x) { return _mm512_add_epi64(_mm512_add_epi64(_mm512_slli_epi64(x, 4), _mm512_slli_epi64(x, 1)), x); }

INLINED fe carried(fe a)
{
    fe r;
    lanes mask = same((1ull << 51) - 1);
    for (int i = 0; i < 5; i++) {
        lanes over = _mm512_srli_epi64(a.v[(i + 4) % 5], 51);
        r.v[i] = _mm512_add_epi64(_mm512_and_si512(a.v[i], mask), i ? over : times19(over));
    }
    return r;
}

INLINED fe sum(fe a, fe b)
{
    for (int i = 0; i < 5; i++) a.v[i] = _mm512_add_epi64(a.v[i], b.v[i]);
    return carried(a);
}

INLINED fe difference(fe a, fe b) /* a + 4 (2^255 - 19) - b */
{
    for (int i = 0; i < 5; i++) {
        lanes p = same((1ull << 53) - (i ? 4 : 76));
        a.v[i] = _mm512_sub_epi64(_mm512_add_epi64(a.v[i], p), b.v[i]);
    }
    return carried(a);
}

IFMA static fe product(fe a, fe b)
{
    lanes low[10], high[10];
    fe r;
    for (int i = 0; i < 10; i++) low[i] = high[i] = _mm512_setzero_si512();
    _Pragma("GCC unroll 5") for (int i = 0; i < 5; i++)
        _Pragma("GCC unroll 5") for (int j = 0; j < 5; j++) {
            low[i + j] = _mm512_madd52lo_epu64(low[i + j], a.v[i], b.v[j]);
            high[i + j + 1] = _mm512_madd52hi_epu64(high[i + j + 1], a.v[i], b.v[j]); /* counts 2^52: twice a limb */
        }
    for (int i = 0; i < 10; i++) low[i] = _mm512_add_epi64(low[i], _mm512_slli_epi64(high[i], 1));
    for (int i = 0; i < 5; i++) r.v[i] = _mm512_add_epi64(low[i], times19(low[i + 5]));
    return carried(r);
}

INLINED fe times(fe a, uint64_t small)
{
    fe low, high;
    for (int i = 0; i < 5; i++) {
        low.v[i] = _mm512_madd52lo_epu64(_mm512_setzero_si512(), a.v[i], same(small));
        high.v[(i + 1) % 5] = _mm512_slli_epi64(_mm512_madd52hi_epu64(_mm512_setzero_si512(), a.v[i], same(small)), 1);
    }
    high.v[0] = times19(high.v[0]);
    for (int i = 0; i < 5; i++) low.v[i] = _mm512_add_epi64(low.v[i], high.v[i]);
    return carried(low);
}

IFMA static fe squares(fe a, int times)
{
    while (times--) a = product(a, a);
    return a;
}

IFMA static fe inverse(fe z) /* z^(2^255 - 21) */
{
    fe z2 = product(z, z), z9 = product(squares(z2, 2), z), z11 = product(z9, z2);
    fe a5 = product(product(z11, z11), z9), a10 = product(squares(a5, 5), a5), a20 = product(squares(a10, 10), a10);
    fe a40 = product(squares(a20, 20), a20), a50 = product(squares(a40, 10), a10), a100 = product(squares(a50, 50), a50);
    fe a200 = product(squares(a100, 100), a100), a250 = product(squares(a200, 50), a50);
    return product(squares(a250, 5), z11);
}

INLINED void swap(fe *a, fe *b, lanes mask)
{
    for (int i = 0; i < 5; i++) {
        lanes t = _mm512_and_si512(mask, _mm512_xor_si512(a->v[i], b->v[i]));
        a->v[i] = _mm512_xor_si512(a->v[i], t);
        b->v[i] = _mm512_xor_si512(b->v[i], t);
    }
}

/* Eight points at once, RFC 7748. */
IFMA static void ladder(const uint8_t *e, const uint64_t in[5][8], uint64_t out[5][8])
{
    fe x1, x2, z2, x3, z3;
    for (int i = 0; i < 5; i++) {
        x1.v[i] = _mm512_loadu_si512(in[i]);
        x2.v[i] = z3.v[i] = i ? _mm512_setzero_si512() : same(1);
        z2.v[i] = _mm512_setzero_si512();
    }
    x3 = x1;
    uint64_t before = 0;
    for (int at = 254; at >= 0; at--) {
        uint64_t bit = e[at / 8] >> at % 8 & 1;
        lanes mask = same(0 - (bit ^ before));
        before = bit;
        swap(&x2, &x3, mask);
        swap(&z2, &z3, mask);
        fe a = sum(x2, z2), b = difference(x2, z2), c = sum(x3, z3), d = difference(x3, z3);
        fe aa = product(a, a), bb = product(b, b), da = product(d, a), cb = product(c, b), s = difference(aa, bb);
        fe u = sum(da, cb), v = difference(da, cb);
        x3 = product(u, u);
        z3 = product(x1, product(v, v));
        x2 = product(aa, bb);
        z2 = product(s, sum(aa, times(s, 121665)));
    }
    lanes mask = same(0 - before);
    swap(&x2, &x3, mask);
    swap(&z2, &z3, mask);
    fe r = product(x2, inverse(z2));
    for (int i = 0; i < 5; i++) _mm512_storeu_si512(out[i], r.v[i]);
}

static int has_ifma(void) { return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512ifma"); }

/* out (n, 32): the private key with each of n public ones. 0 where the processor cannot. */
EXPORT int agreements(const uint8_t *private, const uint8_t *publics, size_t n, uint8_t *out)
{
    const uint64_t mask = (1ull << 51) - 1;
    uint8_t e[32];
    uint64_t limbs[5][8], found[5][8];
    if (!has_ifma()) return 0;
    memcpy(e, private, 32);
    e[0] &= 248;
    e[31] = (e[31] & 127) | 64;
    for (size_t low = 0; low < n; low += 8) {
        for (size_t lane = 0; lane < 8; lane++) {
            uint64_t w[4];
            memcpy(w, publics + 32 * (low + lane < n ? low + lane : low), 32);
            limbs[0][lane] = w[0] & mask;
            limbs[1][lane] = (w[0] >> 51 | w[1] << 13) & mask;
            limbs[2][lane] = (w[1] >> 38 | w[2] << 26) & mask;
            limbs[3][lane] = (w[2] >> 25 | w[3] << 39) & mask;
            limbs[4][lane] = w[3] >> 12 & mask;
        }
        ladder(e, (const uint64_t(*)[8])limbs, found);
        for (size_t lane = 0; lane < 8 && low + lane < n; lane++) {
            uint64_t r[5], w[4], over = 0;
            for (int i = 0; i < 5; i++) r[i] = found[i][lane];
            for (int round = 0; round < 2; round++) { /* limbs under 2^51 */
                for (int i = 0; i < 4; i++) { r[i + 1] += r[i] >> 51; r[i] &= mask; }
                r[0] += 19 * (r[4] >> 51);
                r[4] &= mask;
            }
            over = r[0] + 19; /* at least 2^255 - 19: once more */
            for (int i = 0; i < 4; i++) over = r[i + 1] + (over >> 51);
            r[0] += 19 * (over >> 51);
            for (int i = 0; i < 4; i++) { r[i + 1] += r[i] >> 51; r[i] &= mask; }
            r[4] &= mask;
            w[0] = r[0] | r[1] << 51;
            w[1] = r[1] >> 13 | r[2] << 38;
            w[2] = r[2] >> 26 | r[3] << 25;
            w[3] = r[3] >> 39 | r[4] << 12;
            memcpy(out + 32 * (low + lane), w, 32);
        }
    }
    memset(e, 0, sizeof e);
    memset(found, 0, sizeof found);
    __asm__ volatile("" : : "r"(e), "r"(found) : "memory");
    return 1;
}
#else
EXPORT int agreements(const uint8_t *private, const uint8_t *publics, size_t n, uint8_t *out)
{
    (void)private, (void)publics, (void)n, (void)out;
    return 0;
}
#endif
