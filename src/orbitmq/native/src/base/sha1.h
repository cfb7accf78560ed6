/* SHA-1, and HMAC-SHA1 from a key that is hashed once. */
#ifndef ORBITMQ_SHA1_H
#define ORBITMQ_SHA1_H
#include <Python.h>
#include <stdint.h>

#define SHA1_SIZE 20
#define SHA1_BLOCK 64

typedef struct {
    uint32_t state[5];
    uint64_t size;
    uint8_t block[SHA1_BLOCK];
} Sha1;

/* The states behind the padded key, inside and outside. */
typedef struct { uint32_t inner[5], outer[5]; } HmacKey;

static void hmac_make_key(HmacKey *key, const uint8_t *secret, Py_ssize_t size);
static void hmac_begin(Sha1 *hash, const HmacKey *key);
static void sha1_add(Sha1 *hash, const uint8_t *at, Py_ssize_t size);
static void hmac_end(Sha1 *hash, const HmacKey *key, uint8_t *digest);

#endif
