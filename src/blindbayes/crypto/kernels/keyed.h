/* Included by lanes.c. Many AES-256 keys, each for a little: masks of a sum, streams, boxes. */

#ifndef PORTABLE
#define ONE 1 /* the least that is encrypted at once */
typedef struct { vec k[15]; } keys256;

#ifdef ARM_AES
INLINE void load_keys256(keys256 *k, const uint32_t *w)
{
    for (int r = 0; r < 15; r++) k->k[r] = load_block(w + 4 * r);
}
#endif

/* x := AES-256(x), n <= U vectors, n constant. */
INLINE void encrypt256(vec *x, const keys256 *k, const int n)
{
#ifdef ARM_AES
    UNROLL for (int r = 0; r < 13; r++) UNROLL for (int j = 0; j < n; j++) ROUND(x[j], k, r);
    UNROLL for (int j = 0; j < n; j++) x[j] = (vec)vaeseq_u8((uint8x16_t)x[j], (uint8x16_t)k->k[13]) ^ k->k[14];
#else
    UNROLL for (int j = 0; j < n; j++) x[j] ^= k->k[0];
    UNROLL for (int r = 1; r < 14; r++) UNROLL for (int j = 0; j < n; j++) ROUND(x[j], k, r);
#if V == 2
    UNROLL for (int j = 0; j < n; j++) x[j] = (vec)_mm256_aesenclast_epi128((__m256i)x[j], (__m256i)k->k[14]);
#else
    UNROLL for (int j = 0; j < n; j++) x[j] = (vec)_mm_aesenclast_si128((__m128i)x[j], (__m128i)k->k[14]);
#endif
#endif
}
#else
#define ONE U
typedef struct { word k[15][8]; } keys256;

static __attribute__((noinline)) void load_keys256(keys256 *k, const uint32_t *w)
{
    for (int r = 0; r < 15; r++) {
        uint8_t same[256];
        for (int b = 0; b < 16; b++) memcpy(same + 16 * b, w + 4 * r, 16);
        to_planes(k->k[r], same);
        wipe(same, sizeof same);
    }
}

static __attribute__((noinline)) void encrypt256(vec *x, const keys256 *k, const int n)
{
    word q[8];
    (void)n; /* all planes hold a step */
    to_planes(q, (const uint8_t *)x);
    for (int p = 0; p < 8; p++) q[p] ^= k->k[0][p];
    for (int r = 1; r < 15; r++) {
        sub_planes(q);
        for (int p = 0; p < 8; p++) q[p] = shift_rows(q[p]);
        if (r < 14) mix_columns(q);
        for (int p = 0; p < 8; p++) q[p] ^= k->k[r][p];
    }
    from_planes(q, (uint8_t *)x);
}
#endif

#if defined(PORTABLE) || defined(ARM_AES)
static void expand_key256(keys256 *k, const uint8_t *key)
{
    static const uint8_t constants[7] = {1, 2, 4, 8, 16, 32, 64};
    uint32_t w[60];
    memcpy(w, key, 32);
    for (int i = 8; i < 60; i++) {
        uint32_t x = w[i - 1];
        if (i % 8 == 0) x = sub_word(x >> 8 | x << 24) ^ constants[i / 8 - 1];
        if (i % 8 == 4) x = sub_word(x);
        w[i] = w[i - 8] ^ x;
    }
    load_keys256(k, w);
    wipe(w, sizeof w);
}
#else
INLINE __m128i summed_words(__m128i x) /* each word, and all words before it */
{
    x = _mm_xor_si128(x, _mm_slli_si128(x, 4));
    return _mm_xor_si128(x, _mm_slli_si128(x, 8));
}

INLINE void expand_key256(keys256 *k, const uint8_t *key)
{
    const __m128i turned = _mm_set1_epi32(0x0c0f0e0d); /* the last word, its bytes turned, in every column */
    __m128i a = _mm_loadu_si128((const __m128i *)key), b = _mm_loadu_si128((const __m128i *)key + 1);
    k->k[0] = spread((block)a);
    k->k[1] = spread((block)b);
    UNROLL for (int i = 1; i < 8; i++) {
        a = _mm_xor_si128(summed_words(a), _mm_aesenclast_si128(_mm_shuffle_epi8(b, turned), _mm_set1_epi32(1 << (i - 1))));
        k->k[2 * i] = spread((block)a);
        if (i == 7) break;
        b = _mm_xor_si128(summed_words(b), _mm_aesenclast_si128(_mm_shuffle_epi32(a, 0xff), _mm_setzero_si128()));
        k->k[2 * i + 1] = spread((block)b);
    }
}
#endif

/* A step of the blocks of counter mode from block `at`, a multiple of STEP: the counter is the last 32 bits of a block,
   big-endian, `head` the rest; so within a step only the last byte counts. */
INLINE void counted(block head, uint32_t at, vec *x)
{
    head[1] |= (uint64_t)__builtin_bswap32(at) << 32;
    vec next = spread(head);
#if V == 2
    next += (vec){0, 0, 0, 1ull << 56};
#endif
    EACH(j) { x[j] = next; next += pairs(0, (uint64_t)V << 56); }
}

/* total (words): plus the streams of the first `plus` keys of n, minus the others'. */
KERNEL(masks)(const uint8_t *from, size_t n, size_t plus, size_t words, uint64_t *total)
{
    keys256 k;
    vec x[U];
    for (size_t i = 0; i < n; i++) {
        uint64_t sign = 0 - (uint64_t)(i >= plus); /* -x is ~x + 1 */
        expand_key256(&k, from + 32 * i);
        for (size_t low = 0; low < words; low += 2 * STEP) {
            counted((block){0, 0}, (uint32_t)(low / 2), x);
            encrypt256(x, &k, U);
            if (words - low >= 2 * STEP) {
                uint64_t *to = total + low;
                EACH(j) store(to + 2 * V * j, load(to + 2 * V * j) + (x[j] ^ pairs(sign, sign)) - pairs(sign, sign));
            } else {
                uint64_t rest[2 * STEP];
                memcpy(rest, x, sizeof rest);
                for (size_t w = 0; w < words - low; w++) total[low + w] += (rest[w] ^ sign) - sign;
                wipe(rest, sizeof rest);
            }
        }
    }
    wipe(&k, sizeof k);
    wipe(x, sizeof x);
}

/* Twice an element of GF(2^128) as CMAC writes them. */
INLINE void twice(uint8_t *x)
{
    uint64_t w[2];
    memcpy(w, x, 16);
    uint64_t high = __builtin_bswap64(w[0]), low = __builtin_bswap64(w[1]);
    w[0] = __builtin_bswap64(high << 1 | low >> 63);
    w[1] = __builtin_bswap64(low << 1 ^ (135 & (0 - (high >> 63))));
    memcpy(x, w, 16);
}

#define DRAWN 8 /* blocks of a key's output, at most */

/* (n, 16 * blocks): for each key, the CMACs of the numbers from 1 on, 4 bytes, before the same text. */
KERNEL(derive)(const uint8_t *from, size_t n, const uint8_t *text, size_t size, size_t blocks, uint8_t *out)
{
    keys256 k;
    vec x[U];
    uint8_t own[16], *lanes = (uint8_t *)x;
    for (size_t i = 0; i < n; i++) {
        expand_key256(&k, from + 32 * i);
        EACH(j) x[j] = pairs(0, 0);
        encrypt256(x, &k, ONE);
        memcpy(own, x, 16);
        twice(own);
        if (!size || (size + 4) % 16) twice(own);
        EACH(j) x[j] = pairs(0, 0);
        for (size_t low = 0; low < size + 4; low += 16) {
            uint8_t here[16] = {0};
            size_t skip = low ? 0 : 4, some = size + 4 - low < 16 ? size + 4 - low : 16;
            memcpy(here + skip, text + low + skip - 4, some - skip);
            if (some < 16) here[some] = 128;
            if (low + 16 >= size + 4) for (int b = 0; b < 16; b++) here[b] ^= own[b];
            block same = load_block(here);
            EACH(j) x[j] ^= spread(same);
            if (!low) for (int b = 0; b < DRAWN; b++) lanes[16 * b + 3] ^= (uint8_t)(b + 1);
            encrypt256(x, &k, ONE * DRAWN / V < U ? ONE * DRAWN / V : U);
        }
        memcpy(out + 16 * blocks * i, x, 16 * blocks);
    }
    wipe(&k, sizeof k);
    wipe(x, sizeof x);
    wipe(own, sizeof own);
}

#if defined(PORTABLE) || defined(ARM_AES)
#define TIMES(x, i, y, j) product((x)[i], (y)[j])
#else
#define TIMES(x, i, y, j) (block)_mm_clmulepi64_si128((__m128i)(x), (__m128i)(y), (i) | (j) << 4)
#endif

INLINE block multiplied(block x, block y)
{
    block low = TIMES(x, 0, y, 0), middle = TIMES(x, 0, y, 1) ^ TIMES(x, 1, y, 0), high = TIMES(x, 1, y, 1);
    return reduced(low[0], low[1] ^ middle[0], high[0] ^ middle[1], high[1]);
}

/* total := (total ^ x) h for each block x of `size` bytes, padded with zeros. */
INLINE block absorb(block total, block h, const uint8_t *from, size_t size)
{
    for (size_t low = 0; low < size; low += 16) {
        uint8_t last[16] = {0};
        memcpy(last, from + low, size - low < 16 ? size - low : 16);
        total = multiplied(total ^ written(load_block(last)), h);
    }
    return total;
}

/* AES-256-GCM of n texts of `width` bytes, each under its own key, all with one nonce of 12 bytes and the same associated data.
   With `opens` the texts are ciphertexts. Texts lie `apart` bytes from one another, and results, and their tags of 16 bytes,
   `out_apart`. The tags are of the ciphertexts: whoever opens compares them. */
KERNEL(gcm)(const uint8_t *from, size_t n, const uint8_t *nonce, const uint8_t *associated, size_t size, const uint8_t *texts,
            size_t apart, size_t width, int opens, uint8_t *out, size_t out_apart)
{
    keys256 k;
    vec x[U];
    uint8_t stream[16 * STEP];
    block head = {0, 0};
    memcpy(&head, nonce, 12);
    for (size_t i = 0; i < n; i++) {
        const uint8_t *text = texts + i * apart;
        uint8_t *to = out + i * out_apart;
        uint64_t lengths[2] = {__builtin_bswap64(8 * (uint64_t)size), __builtin_bswap64(8 * (uint64_t)width)}, mask[2];
        block h = {0, 0};
        expand_key256(&k, from + 32 * i);
        for (size_t low = 0; low < width + 32; low += sizeof stream) { /* block 0 would be of no use, and 1 masks the tag */
            counted(head, (uint32_t)(low / 16), x);
            if (!low) x[0][0] = x[0][1] = 0; /* zeros in its place: the key of the hash */
            if (width) encrypt256(x, &k, U);
            else encrypt256(x, &k, ONE * 2 / V < U ? ONE * 2 / V : U);
            memcpy(stream, x, sizeof stream);
            if (!low) { h = written(load_block(stream)); memcpy(mask, stream + 16, 16); }
            for (size_t b = low ? 0 : 32; b < sizeof stream && low + b < width + 32; b++)
                to[low + b - 32] = text[low + b - 32] ^ stream[b];
        }
        block total = absorb((block){0, 0}, h, associated, size);
        total = absorb(total, h, opens ? text : to, width);
        total = absorb(total, h, (const uint8_t *)lengths, 16);
        uint64_t tag[2] = {__builtin_bswap64(total[1]) ^ mask[0], __builtin_bswap64(total[0]) ^ mask[1]};
        memcpy(to + width, tag, 16);
    }
    wipe(&k, sizeof k);
    wipe(x, sizeof x);
    wipe(stream, sizeof stream);
}

typedef double reals __attribute__((vector_size(32)));
typedef int64_t signs __attribute__((vector_size(32)));

/* 4 * n polynomials, n constant, at a point of the field of 65,521 elements, from t rows of coefficients that lie `wide` apart.
   Sums of products are whole and below 2^48, so exact. */
INLINE void evaluate(const double *powers, const double *from, size_t t, size_t wide, uint16_t *out, size_t some, const int n)
{
    const double nearest = 6755399441055744.0; /* 3 * 2^51: added and taken off again it leaves a whole number */
    reals total[9], x, p = {65521, 65521, 65521, 65521};
    uint16_t values[36];
    UNROLL for (int j = 0; j < n; j++) total[j] = (reals){0};
    for (size_t k = 0; k < t; k++)
        UNROLL for (int j = 0; j < n; j++) { memcpy(&x, from + k * wide + 4 * j, sizeof x); total[j] += x * powers[k]; }
    UNROLL for (int j = 0; j < n; j++) {
        x = total[j] * (1 / 65521.0) + nearest;
        x = total[j] - (x - nearest) * p; /* about half of p from 0, at most */
        x += (reals)((signs)p & (signs)(x < 0));
        for (int i = 0; i < 4; i++) values[4 * j + i] = (uint16_t)(int)x[i];
    }
    memcpy(out, values, 2 * some);
    wipe(values, sizeof values);
}

/* Shares (n, count, limbs) of secrets (count, size), see primitives/shamir: limbs of 15 bits, each the constant term of a polynomial
   whose t - 1 other coefficients are the next of those drawn that lie in the field; n points, powers (n, t). work: t rows of
   count * limbs, rounded up to 4. Returns how many coefficients there are too few. */
__attribute__((visibility("default"))) size_t NAMED(shares, ISA)(const double *powers, const uint8_t *secrets, const uint8_t *drawn,
    size_t count, size_t size, size_t pairs, size_t n, size_t t, double *work, uint16_t *out)
{
    size_t limbs = (8 * size + 14) / 15, m = count * limbs, wide = (m + 3) / 4 * 4, next = 0;
    for (size_t k = 1; k < t; k++)
        for (size_t j = 0; j < m;) {
            if (next == pairs) return (t - k) * m - j;
            unsigned x = drawn[2 * next] | (unsigned)drawn[2 * next + 1] << 8;
            work[k * wide + j] = x;
            j += x < 65521;
            next++;
        }
    for (size_t i = 0; i < m; i++) {
        const uint8_t *secret = secrets + i / limbs * size;
        size_t bit = i % limbs * 15, at = bit / 8;
        uint32_t x = secret[at] | (at + 1 < size ? secret[at + 1] : 0u) << 8 | (at + 2 < size ? secret[at + 2] : 0u) << 16;
        work[i] = x >> bit % 8 & 32767;
    }
    for (size_t k = 0; k < t; k++) for (size_t j = m; j < wide; j++) work[k * wide + j] = 0;
    for (size_t i = 0; i < n; i++) {
        size_t low = 0;
        for (; wide - low >= 36; low += 36) evaluate(powers + i * t, work + low, t, wide, out + i * m + low, m - low < 36 ? m - low : 36, 9);
        for (; low < wide; low += 4) evaluate(powers + i * t, work + low, t, wide, out + i * m + low, m - low < 4 ? m - low : 4, 1);
    }
    wipe(work, t * wide * sizeof *work);
    return 0;
}
