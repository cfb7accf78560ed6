/* CRC-32 as zlib has it: by a table, and where the processor can multiply without carries, by folding. */
#include "base/crc32.h"
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define PY_SSIZE_T_CLEAN

#if defined(__x86_64__) && defined(__GNUC__)
#define CAN_FOLD 1
#include <immintrin.h>
#else
#define CAN_FOLD 0
#endif

static uint32_t crc_table[8][256];

static int crc_is_folded;

static void make_crc_table(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        crc_table[0][n] = c;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int t = 1; t < 8; t++)
            crc_table[t][n] = (crc_table[t - 1][n] >> 8) ^ crc_table[0][crc_table[t - 1][n] & 0xFF];
#if CAN_FOLD
    crc_is_folded = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse2");
#endif
}

static uint32_t crc_by_table(uint32_t c, const uint8_t *at, Py_ssize_t size) {
    while (size >= 8) {
        uint32_t low, high;
        memcpy(&low, at, 4);
        memcpy(&high, at + 4, 4);
        low ^= c;
        c = crc_table[7][low & 0xFF] ^ crc_table[6][low >> 8 & 0xFF] ^ crc_table[5][low >> 16 & 0xFF] ^
            crc_table[4][low >> 24] ^ crc_table[3][high & 0xFF] ^ crc_table[2][high >> 8 & 0xFF] ^
            crc_table[1][high >> 16 & 0xFF] ^ crc_table[0][high >> 24];
        at += 8;
        size -= 8;
    }
    while (size--) c = (c >> 8) ^ crc_table[0][(c ^ *at++) & 0xFF];
    return c;
}

#if CAN_FOLD
#define FOLDED_AT_ONCE 64
#define FOLDED __attribute__((target("pclmul,sse2")))

/* What 16 bytes amount to so many bytes further on, where these are: the factors write_error how many. */
static inline FOLDED __m128i fold(__m128i bytes, __m128i factors, __m128i there) {
    __m128i low = _mm_clmulepi64_si128(bytes, factors, 0x00), high = _mm_clmulepi64_si128(bytes, factors, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), there);
}

static inline FOLDED __m128i sixteen(const uint8_t *at) { return _mm_loadu_si128((const __m128i *)at); }

/* 16 bytes that have, from 0 on, the same CRC as these have from c on; there are 16 or more, in sixteens. */
static FOLDED void fold_all(uint32_t c, const uint8_t *at, Py_ssize_t size, uint8_t *out) {
    /* The remainders of x to the powers 544, 480, 160 and 96, mirrored: 64 bytes and 16 bytes further on. */
    const __m128i by_64 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4), by_16 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0);
    __m128i one = _mm_xor_si128(sixteen(at), _mm_cvtsi32_si128((int)c));
    if (size >= 64) {
        __m128i two = sixteen(at + 16), three = sixteen(at + 32), four = sixteen(at + 48);
        for (at += 64, size -= 64; size >= 64; at += 64, size -= 64) {
            one = fold(one, by_64, sixteen(at));
            two = fold(two, by_64, sixteen(at + 16));
            three = fold(three, by_64, sixteen(at + 32));
            four = fold(four, by_64, sixteen(at + 48));
        }
        one = fold(fold(fold(one, by_16, two), by_16, three), by_16, four);
    } else {
        at += 16;
        size -= 16;
    }
    for (; size >= 16; at += 16, size -= 16) one = fold(one, by_16, sixteen(at));
    _mm_storeu_si128((__m128i *)out, one);
}
#endif

static uint32_t crc_of(const uint8_t *at, Py_ssize_t size) {
    uint32_t c = 0xFFFFFFFFu;
#if CAN_FOLD
    if (crc_is_folded && size >= FOLDED_AT_ONCE) {
        uint8_t left[16];
        Py_ssize_t folded = size & ~(Py_ssize_t)15;
        fold_all(c, at, folded, left);
        c = crc_by_table(0, left, sizeof left);
        at += folded;
        size -= folded;
    }
#endif
    return ~crc_by_table(c, at, size);
}
