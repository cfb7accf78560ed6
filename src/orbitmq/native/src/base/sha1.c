/* SHA-1 (FIPS 180-4), and HMAC-SHA1 (RFC 2104) from a key that is hashed once. */
#include "base/sha1.h"
#include "base/byte_order.h"

static const uint32_t SHA1_START[5] = {0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u, 0xC3D2E1F0u};

static inline uint32_t rotate_left(uint32_t value, int bits) { return value << bits | value >> (32 - bits); }

/* Word `t` of the message schedule, of which the last 16 are kept. */
static inline uint32_t schedule(uint32_t *words, int t) {
    uint32_t word = words[(t + 13) & 15] ^ words[(t + 8) & 15] ^ words[(t + 2) & 15] ^ words[t & 15];
    return words[t & 15] = rotate_left(word, 1);
}

#define SHA1_STEP(mixed, constant, word)                                             \
    do {                                                                             \
        uint32_t next = rotate_left(a, 5) + (mixed) + e + (constant) + (word);       \
        e = d; d = c; c = rotate_left(b, 30); b = a; a = next;                       \
    } while (0)

static void sha1_block(uint32_t *state, const uint8_t *block) {
    uint32_t words[16], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int t = 0; t < 16; t++) words[t] = get32(block + 4 * t);
    for (int t = 0; t < 16; t++) SHA1_STEP(d ^ (b & (c ^ d)), 0x5A827999u, words[t]);
    for (int t = 16; t < 20; t++) SHA1_STEP(d ^ (b & (c ^ d)), 0x5A827999u, schedule(words, t));
    for (int t = 20; t < 40; t++) SHA1_STEP(b ^ c ^ d, 0x6ED9EBA1u, schedule(words, t));
    for (int t = 40; t < 60; t++) SHA1_STEP((b & c) | (d & (b | c)), 0x8F1BBCDCu, schedule(words, t));
    for (int t = 60; t < 80; t++) SHA1_STEP(b ^ c ^ d, 0xCA62C1D6u, schedule(words, t));
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

static void sha1_add(Sha1 *hash, const uint8_t *at, Py_ssize_t size) {
    Py_ssize_t filled = hash->size % SHA1_BLOCK;
    hash->size += size;
    if (filled > 0) {
        Py_ssize_t room = SHA1_BLOCK - filled, some = size < room ? size : room;
        memcpy(hash->block + filled, at, some);
        at += some;
        size -= some;
        if (some < room) return;
        sha1_block(hash->state, hash->block);
    }
    for (; size >= SHA1_BLOCK; at += SHA1_BLOCK, size -= SHA1_BLOCK) sha1_block(hash->state, at);
    memcpy(hash->block, at, size);
}

static void sha1_end(Sha1 *hash, uint8_t *digest) {
    static const uint8_t padding[SHA1_BLOCK] = {0x80};
    uint8_t bits[8];
    put64(bits, hash->size * 8);
    Py_ssize_t filled = hash->size % SHA1_BLOCK;
    sha1_add(hash, padding, (filled < 56 ? 56 : 120) - filled);
    sha1_add(hash, bits, sizeof bits);
    for (int n = 0; n < 5; n++) put32(digest + 4 * n, hash->state[n]);
}

static void hash_pad(uint32_t *state, const uint8_t *key, uint8_t with) {
    uint8_t block[SHA1_BLOCK];
    for (int n = 0; n < SHA1_BLOCK; n++) block[n] = key[n] ^ with;
    memcpy(state, SHA1_START, sizeof SHA1_START);
    sha1_block(state, block);
}

static void hmac_make_key(HmacKey *key, const uint8_t *secret, Py_ssize_t size) {
    uint8_t padded[SHA1_BLOCK] = {0};
    if (size > SHA1_BLOCK) {
        Sha1 hash = {{0}, 0, {0}};
        memcpy(hash.state, SHA1_START, sizeof SHA1_START);
        sha1_add(&hash, secret, size);
        sha1_end(&hash, padded);
    } else {
        memcpy(padded, secret, size);
    }
    hash_pad(key->inner, padded, 0x36);
    hash_pad(key->outer, padded, 0x5C);
}

static void hmac_begin(Sha1 *hash, const HmacKey *key) {
    memcpy(hash->state, key->inner, sizeof key->inner);
    hash->size = SHA1_BLOCK;
}

static void hmac_end(Sha1 *hash, const HmacKey *key, uint8_t *digest) {
    uint8_t inner[SHA1_SIZE];
    sha1_end(hash, inner);
    memcpy(hash->state, key->outer, sizeof key->outer);
    hash->size = SHA1_BLOCK;
    sha1_add(hash, inner, sizeof inner);
    sha1_end(hash, digest);
}
