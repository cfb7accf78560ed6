/* Remoting header of a request, JSON or binary, as clients write it; an unusual one is not parsed. */
#ifndef ORBITMQ_REMOTING_HEADER_H
#define ORBITMQ_REMOTING_HEADER_H
#include "base/byte_order.h"

#define BINARY_FIXED 17
#define MAX_FIELDS 14

/* As MAX_HEADER_BYTES of remoting/limits/connection_limits.py: properties have 32,767 bytes at most, and an escape is
 * six times as long as its character. Longer headers are for the Python path, which knows the setting. */
#define MAX_HEADER (256 * 1024)

typedef struct {
    int64_t code, opaque, flag;
    Slice fields[MAX_FIELDS];
    uint32_t present, escaped; /* bits of fields */
} Request;

/* Maps a field name to its number; -1 for fields that are skipped. */
typedef int (*WhichField)(Slice name);

static int number_of(Slice text, int64_t least, int64_t *value);
static int int32_of(Slice text, int64_t *value);
static int slice_equals(Slice text, const char *other);
static int read_json(const uint8_t *at, const uint8_t *end, PyObject *languages, WhichField which, Request *request);
static int is_ascii(const uint8_t *at, Py_ssize_t size);
static int read_binary(const uint8_t *at, const uint8_t *end, WhichField which, Request *request);

#endif
