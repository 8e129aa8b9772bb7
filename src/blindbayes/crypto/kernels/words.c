/* What needs no vectors of blocks: which processor this is, and the kernels on words. Compiled once. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#define EXPORT __attribute__((visibility("default")))

#include "cells.h"
#include "counts.h"
#include "curve.h"

/* Hash of the sources that this was built from. */
EXPORT const char *kernels_digest(void) { return DIGEST; }

#if defined(__x86_64__)
/* 0: neither, 1: AES-NI and AVX2, 2: VAES and VPCLMULQDQ too, 3: AVX-512 and GFNI too; the system must save the wide registers. */
static int level(void)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 25) || !(c & 1u << 1)) return 0; /* AES, PCLMUL */
    if (!(c & 1u << 27) || !(c & 1u << 28)) return 0; /* XSAVE, AVX */
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & 1u << 5)) return 0; /* AVX2 */
    if ((c & 3u << 9) != 3u << 9) return 1;
    return (low & 0xE6) == 0xE6 && b & 1u << 16 && b & 1u << 30 && b & 1u << 31 && c & 1u << 8 ? 3 : 2; /* F, BW, VL, GFNI */
}
#endif

/* The instruction sets that are built in and that this processor has, the fastest last. */
EXPORT const char *kernels_sets(void)
{
#if defined(HAS_AVX512) && defined(HAS_VAES)
    if (level() > 2) return "portable aesni vaes avx512";
#endif
#if defined(HAS_VAES)
    if (level() > 1) return "portable aesni vaes";
#endif
#if defined(HAS_AESNI)
    if (level() > 0) return "portable aesni";
#endif
#if defined(HAS_ARMV8) && defined(__APPLE__)
    return "portable armv8";
#elif defined(HAS_ARMV8) && defined(__linux__)
    if (getauxval(AT_HWCAP) & 1 << 3) return "portable armv8"; /* HWCAP_AES */
#endif
    return "portable";
}

/* Tells the C library to keep up to `bytes` of freed memory: where the kernels work, fresh pages are a third of what is left. */
EXPORT void kernels_keep_memory(int bytes)
{
#if defined(__GLIBC__)
    mallopt(M_MMAP_THRESHOLD, bytes < 1 << 25 ? bytes : 1 << 25);
    mallopt(M_TRIM_THRESHOLD, bytes);
#else
    (void)bytes;
#endif
}

/* -- the oblivious key-value store. Its cells are read where the owner's own keys say, as numpy does ------------------------------ */

/* Rounds: every cell with one waiting user frees that user; of several cells of one user the lowest counts. sparse: (n, 3) places
   below size. order, pivots: (n,), the keys as they are freed and their cells; returns how many. work: 4 * size + 7 * n zeros. */
EXPORT size_t store_peel(const int64_t *sparse, size_t n, size_t size, int64_t *order, int64_t *pivots, int64_t *work)
{
    int64_t *degree = work, *users = degree + size, *now = users + size, *next = now + size + 3 * n, *pivot = next + size + 3 * n;
    size_t singles = 0, freed = 0;
    for (size_t i = 0; i < 3 * n; i++) { degree[sparse[i]]++; users[sparse[i]] ^= (int64_t)(i / 3); }
    for (size_t cell = 0; cell < size; cell++) if (degree[cell] == 1) now[singles++] = (int64_t)cell;
    for (size_t i = 0; i < n; i++) pivot[i] = -1;
    while (singles) {
        size_t begun = freed, found = 0;
        for (size_t i = 0; i < singles; i++) { /* a cell may stand here twice */
            int64_t cell = now[i], key = users[cell];
            if (pivot[key] < 0) { pivot[key] = cell; order[freed++] = key; }
            else if (cell < pivot[key]) pivot[key] = cell;
        }
        for (size_t i = begun; i < freed; i++) {
            pivots[i] = pivot[order[i]];
            for (int j = 0; j < 3; j++) { int64_t cell = sparse[3 * order[i] + j]; degree[cell]--; users[cell] ^= order[i]; }
        }
        for (size_t i = begun; i < freed; i++)
            for (int j = 0; j < 3; j++) { int64_t cell = sparse[3 * order[i] + j]; if (degree[cell] == 1) next[found++] = cell; }
        int64_t *swap = now;
        now = next;
        next = swap;
        singles = found;
    }
    return freed;
}

/* table[pivot] := wanted ^ the key's other two cells, last freed first. */
EXPORT void store_assign(const int64_t *sparse, const int64_t *order, const int64_t *pivots, size_t freed, size_t width,
                         const uint64_t *wanted, uint64_t *table)
{
    for (size_t i = freed; i-- > 0;) {
        const int64_t *at = sparse + 3 * order[i];
        for (size_t w = 0; w < width; w++) {
            uint64_t *to = table + (size_t)pivots[i] * width + w;
            *to = 0;
            *to = wanted[(size_t)order[i] * width + w] ^ table[(size_t)at[0] * width + w] ^ table[(size_t)at[1] * width + w] ^
                  table[(size_t)at[2] * width + w];
        }
    }
}

/* What the store gives: the dense cells of the mask, and three sparse cells unless sparse is NULL. sums: 2048 * width words. */
EXPORT void store_decode(const uint64_t *table, const int64_t *sparse, const uint64_t *dense, size_t n, size_t width, uint64_t *out,
                         uint64_t *sums)
{
    for (size_t value = 0; value < 2048; value++)
        for (size_t w = 0; w < width; w++) {
            uint64_t x = 0;
            for (size_t bit = 0; bit < 8; bit++) x ^= (0 - (value >> bit & 1)) & table[(value / 256 * 8 + bit) * width + w];
            sums[value * width + w] = x;
        }
    for (size_t i = 0; i < n; i++)
        for (size_t w = 0; w < width; w++) {
            uint64_t x = 0;
            for (size_t byte = 0; byte < 8; byte++) x ^= sums[(256 * byte + (dense[i] >> (8 * byte) & 255)) * width + w];
            for (size_t j = 0; sparse && j < 3; j++) x ^= table[(size_t)sparse[3 * i + j] * width + w];
            out[i * width + w] = x;
        }
}
