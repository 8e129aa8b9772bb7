/* What needs no vectors of blocks: which processor this is, and later kernels on words. Compiled once. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#define EXPORT __attribute__((visibility("default")))

/* Hash of the sources that this was built from. */
EXPORT const char *kernels_digest(void) { return DIGEST; }

#if defined(__x86_64__)
/* 0: neither, 1: AES-NI and AVX2, 2: VAES too; the system must save the wide registers. */
static int level(void)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & 1u << 25) || !(c & 1u << 27) || !(c & 1u << 28)) return 0; /* AES, XSAVE, AVX */
    __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & 1u << 5)) return 0; /* AVX2 */
    return c & 1u << 9 ? 2 : 1;
}
#endif

/* The instruction sets that are built in and that this processor has, the fastest last. */
EXPORT const char *kernels_sets(void)
{
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
