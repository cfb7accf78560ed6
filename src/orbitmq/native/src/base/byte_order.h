/* Byte order, hashes, growing buffers and slices; constants of formats that all layers share. */
#ifndef ORBITMQ_BYTE_ORDER_H
#define ORBITMQ_BYTE_ORDER_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "written for little-endian machines: others use the Python path"
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
static inline uint64_t little64(const uint8_t *at) { uint64_t value; memcpy(&value, at, 8); return value; }
static inline uint32_t get32(const uint8_t *at) { uint32_t value; memcpy(&value, at, 4); return __builtin_bswap32(value); }

static inline uint32_t hash_on(uint32_t hash, const uint8_t *at, Py_ssize_t size) {
    /* By fours: each step depends on the one before. */
    for (; size >= 4; at += 4, size -= 4) hash = hash * 923521u + (at[0] * 29791u + at[1] * 961u + at[2] * 31u + at[3]);
    while (size-- > 0) hash = hash * 31 + *at++;
    return hash;
}

/* The same over the UTF-16 units of valid UTF-8, as Java hashes text. */
static uint32_t hash_utf8_on(uint32_t hash, const uint8_t *at, Py_ssize_t size) {
    const uint8_t *end = at + size;
    while (at < end) {
        uint32_t first = *at++, character;
        if (first < 0x80) { hash = hash * 31 + first; continue; }
        int more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
        character = first & (0x3Fu >> more);
        for (; more > 0 && at < end; more--) character = character << 6 | (*at++ & 0x3F);
        if (character >= 0x10000) {
            hash = hash * 31 + (0xD7C0 + (character >> 10));
            character = 0xDC00 | (character & 0x3FF);
        }
        hash = hash * 31 + character;
    }
    return hash;
}

/* As in Java: the absolute value, and 0 for the number that has none. */
static inline uint32_t index_hash(uint32_t hash) {
    int32_t value = (int32_t)hash;
    return (value < 0 ? 0u - hash : hash) & 0x7FFFFFFFu;
}

/* Growing memory, reused by the next batch */

typedef struct { uint8_t *data; Py_ssize_t size, room; } ByteBuffer;

static uint8_t *buffer_extend(ByteBuffer *buffer, Py_ssize_t size) {
    if (buffer->size + size > buffer->room) {
        Py_ssize_t room = buffer->room ? buffer->room : 256;
        while (room < buffer->size + size) room *= 2;
        uint8_t *data = PyMem_Realloc(buffer->data, room);
        if (data == NULL) { PyErr_NoMemory(); return NULL; }
        buffer->data = data;
        buffer->room = room;
    }
    uint8_t *at = buffer->data + buffer->size;
    buffer->size += size;
    return at;
}

static void buffer_free(ByteBuffer *buffer) { PyMem_Free(buffer->data); buffer->data = NULL; buffer->size = buffer->room = 0; }

static PyObject *buffer_bytes(const ByteBuffer *buffer) { return PyBytes_FromStringAndSize((char *)buffer->data, buffer->size); }

/* A part of some bytes, not owned */

typedef struct { const uint8_t *at; Py_ssize_t size; } Slice;

#endif
