/* Numbers in bytes, hashes, and memory that grows. */
#ifndef ORBITMQ_BYTES_H
#define ORBITMQ_BYTES_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include "checksum.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "written for little-endian machines: others have the general path"
#endif

#define UNIT_SIZE 20 /* of a queue */
#define BORN_HOST_V6 0x10 /* flags of records */
#define STORE_HOST_V6 0x20
#define PREFIX_SIZE 8 /* of a frame, in front of its header */
#define ONEWAY 2 /* the flag of a request that gets no answer */

static inline void put16(uint8_t *at, uint32_t value) { at[0] = value >> 8; at[1] = value; }
static inline void put32(uint8_t *at, uint32_t value) { value = __builtin_bswap32(value); memcpy(at, &value, 4); }
static inline void put64(uint8_t *at, uint64_t value) { value = __builtin_bswap64(value); memcpy(at, &value, 8); }
static inline uint32_t get16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }
static inline uint64_t get64(const uint8_t *at) { uint64_t value; memcpy(&value, at, 8); return __builtin_bswap64(value); }
static inline uint32_t get32(const uint8_t *at) { uint32_t value; memcpy(&value, at, 4); return __builtin_bswap32(value); }

static inline uint32_t hash_on(uint32_t hash, const uint8_t *at, Py_ssize_t size) {
    /* By fours: one step has to wait for the one before. */
    for (; size >= 4; at += 4, size -= 4) hash = hash * 923521u + (at[0] * 29791u + at[1] * 961u + at[2] * 31u + at[3]);
    while (size-- > 0) hash = hash * 31 + *at++;
    return hash;
}

/* As Java does it: the absolute value, and 0 for the number that has none. */
static inline uint32_t index_hash(uint32_t hash) {
    int32_t value = (int32_t)hash;
    return (value < 0 ? 0u - hash : hash) & 0x7FFFFFFFu;
}

/* Memory that grows and is kept for the next run */

typedef struct { uint8_t *data; Py_ssize_t size, room; } Pile;

static uint8_t *pile_more(Pile *pile, Py_ssize_t size) {
    if (pile->size + size > pile->room) {
        Py_ssize_t room = pile->room ? pile->room : 256;
        while (room < pile->size + size) room *= 2;
        uint8_t *data = PyMem_Realloc(pile->data, room);
        if (data == NULL) { PyErr_NoMemory(); return NULL; }
        pile->data = data;
        pile->room = room;
    }
    uint8_t *at = pile->data + pile->size;
    pile->size += size;
    return at;
}

static void pile_free(Pile *pile) { PyMem_Free(pile->data); pile->data = NULL; pile->size = pile->room = 0; }

static PyObject *pile_bytes(const Pile *pile) { return PyBytes_FromStringAndSize((char *)pile->data, pile->size); }

/* A piece of what was received */

typedef struct { const uint8_t *at; Py_ssize_t size; } Text;

#endif
