/* Remoting header of a request, JSON or binary, as clients write it; an unusual one is not parsed. */
#ifndef ORBITMQ_REMOTING_HEADER_H
#define ORBITMQ_REMOTING_HEADER_H
#include "base/byte_order.h"

#define BINARY_FIXED 17
#define MAX_FIELDS 14

/* As MAX_REQUEST_HEADER_BYTES of remoting/limits/connection_limits.py. Longer headers are for the Python path, which
 * knows the setting and counts escapes. */
#define MAX_HEADER (64 * 1024)

typedef struct {
    int64_t code, opaque, flag;
    Slice fields[MAX_FIELDS];
    uint32_t present, escaped, non_ascii; /* bits of fields; text that is not ASCII is valid UTF-8 */
    uint32_t long_names;                  /* bits of fields whose name had LONG_NAME */
    int has_fields;                       /* a JSON header may have none */
} Request;

/* A value of a JSON object. Text at NULL stands for null. */
typedef struct { Slice text; int escapes, non_ascii; } FieldText;

/* Added to the number of a field that was sent under its long name: a request has fields of one kind only. */
#define LONG_NAME 64

/* Maps a field name to its number, with LONG_NAME where both kinds of names exist; -1 for fields that are skipped. */
typedef int (*WhichField)(Slice name);

static int number_of(Slice text, int64_t least, int64_t *value);
static int int32_of(Slice text, int64_t *value);
static int slice_equals(Slice text, const char *other);
static inline int read_json_head(const uint8_t *at, const uint8_t *end, PyObject *languages, WhichField which, Request *request);
static inline int read_json(const uint8_t *at, const uint8_t *end, PyObject *languages, WhichField which, Request *request);
static inline const uint8_t *skip_blanks(const uint8_t *at, const uint8_t *end);
static inline const uint8_t *read_name(const uint8_t *at, const uint8_t *end, Slice *name);
static inline const uint8_t *read_value(const uint8_t *at, const uint8_t *end, FieldText *string);
static inline int follows(const uint8_t **at, const uint8_t *end);
static int64_t request_code_of(const uint8_t *at, const uint8_t *end);
static int is_ascii(const uint8_t *at, Py_ssize_t size);
static int is_utf8(const uint8_t *at, Py_ssize_t size);
static const uint8_t *binary_fields(const uint8_t *header, const uint8_t *end);
static inline const uint8_t *read_binary_field(const uint8_t *at, const uint8_t *end, Slice *name, FieldText *string);
static int read_binary(const uint8_t *at, const uint8_t *end, WhichField which, Request *request);

#endif
