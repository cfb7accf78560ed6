/* The header of a send, JSON or binary, as clients write it; anything unusual about it is not read. */
#ifndef ORBITMQ_SEND_HEADER_H
#define ORBITMQ_SEND_HEADER_H
#include "bytes.h"

#define SEND_V2 310
#define BINARY_FIXED 17

typedef struct {
    int64_t opaque;
    int64_t flag; /* of the request */
    Text topic, properties;
    int has_escapes; /* in the properties */
    int64_t queue_id, sys_flag, born, message_flag, reconsumed;
} Send;

static int number_of(Text text, int64_t least, int64_t *value) {
    const uint8_t *at = text.at, *end = at + text.size;
    int negative = 0;
    if (at < end && *at == '-' && least < 0) { negative = 1; at++; }
    if (at == end || end - at > 18) return 0;
    int64_t number = 0;
    for (; at < end; at++) {
        if (*at < '0' || *at > '9') return 0;
        number = number * 10 + (*at - '0');
    }
    *value = negative ? -number : number;
    return 1;
}

static int int32_of(Text text, int64_t *value) {
    return number_of(text, INT32_MIN, value) && *value >= INT32_MIN && *value <= INT32_MAX;
}

static int is_text(Text text, const char *other) {
    return text.size == (Py_ssize_t)strlen(other) && memcmp(text.at, other, text.size) == 0;
}

/* The typed fields; 0 if there is anything unusual about them. */
static int read_fields(const Text *fields, uint32_t present, Send *send) {
    int64_t unused;
    if ((present & 0xFF) != 0xFF) return 0; /* a to h */
    send->topic = fields[1];
    send->properties = fields[8];
    send->reconsumed = 0;
    return (present & 1 << 8) && int32_of(fields[3], &unused) && int32_of(fields[4], &send->queue_id) &&
           send->queue_id >= 0 && int32_of(fields[5], &send->sys_flag) && number_of(fields[6], 0, &send->born) &&
           int32_of(fields[7], &send->message_flag) &&
           (!(present & 1 << 9) || int32_of(fields[9], &send->reconsumed)) &&
           (!(present & 1 << 10) || is_text(fields[10], "true") || is_text(fields[10], "false")) &&
           (!(present & 1 << 11) || int32_of(fields[11], &unused)) &&
           (!(present & 1 << 12) || is_text(fields[12], "false"));
}

/* JSON */

static inline const uint8_t *skip_blanks(const uint8_t *at, const uint8_t *end) {
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) at++;
    return at;
}

/* A string of ASCII at its opening quote; returns what follows its closing one, or NULL. */
static inline const uint8_t *read_string(const uint8_t *at, const uint8_t *end, Text *text, int *escapes) {
    if (at >= end || *at != '"') return NULL;
    text->at = ++at;
    *escapes = 0;
    for (; at < end; at++) {
        uint8_t byte = *at;
        if (byte == '"') {
            text->size = at - text->at;
            return at + 1;
        }
        if (byte < 0x20 || byte >= 0x80) return NULL;
        if (byte == '\\') {
            *escapes = 1;
            at++;
        }
    }
    return NULL;
}

static const uint8_t *read_name(const uint8_t *at, const uint8_t *end, Text *name) {
    int escapes;
    at = read_string(skip_blanks(at, end), end, name, &escapes);
    if (at == NULL || escapes) return NULL;
    at = skip_blanks(at, end);
    if (at >= end || *at != ':') return NULL;
    return skip_blanks(at + 1, end);
}

/* Behind a value: 1 if another one follows, 0 if the object ended, -1 if neither. */
static inline int follows(const uint8_t **at, const uint8_t *end) {
    *at = skip_blanks(*at, end);
    if (*at >= end) return -1;
    uint8_t byte = *(*at)++;
    return byte == ',' ? 1 : byte == '}' ? 0 : -1;
}

static const uint8_t *read_ext_fields(const uint8_t *at, const uint8_t *end, Text *fields, uint32_t *present, Send *send) {
    Text name, value;
    int escapes, more;
    if (at >= end || *at != '{') return NULL;
    at++;
    do {
        at = read_name(at, end, &name);
        if (at == NULL) return NULL;
        at = read_string(at, end, &value, &escapes);
        if (at == NULL) return NULL;
        if (name.size == 1 && name.at[0] >= 'a' && name.at[0] <= 'n') {
            int letter = name.at[0] - 'a';
            if (*present & 1u << letter || (escapes && letter != 8)) return NULL;
            *present |= 1u << letter;
            fields[letter] = value;
            if (letter == 8) send->has_escapes = escapes;
        } else if (escapes) {
            return NULL;
        }
        more = follows(&at, end);
    } while (more == 1);
    return more == 0 ? at : NULL;
}

static const uint8_t *read_number(const uint8_t *at, const uint8_t *end, int64_t *value) {
    const uint8_t *start = at;
    while (at < end && *at >= '0' && *at <= '9') at++;
    Text text = {start, at - start};
    if ((text.size > 1 && *start == '0') || !int32_of(text, value)) return NULL;
    return at;
}

enum { CODE = 1, FLAG = 2, OPAQUE = 4, VERSION = 8, LANGUAGE = 16, EXT_FIELDS = 32, HOW = 64 };

static int is_language(PyObject *languages, Text text) {
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(languages); n++) {
        PyObject *name = PyTuple_GET_ITEM(languages, n);
        if (PyBytes_GET_SIZE(name) == text.size && memcmp(PyBytes_AS_STRING(name), text.at, text.size) == 0) return 1;
    }
    return 0;
}

static int read_json(const uint8_t *at, const uint8_t *end, PyObject *languages, Send *send) {
    Text name, value, fields[14];
    uint32_t present = 0;
    int64_t code = 0, unused;
    int seen = 0, what, escapes, more;
    at = skip_blanks(at, end);
    if (at >= end || *at++ != '{') return 0;
    do {
        at = read_name(at, end, &name);
        if (at == NULL) return 0;
        if (is_text(name, "code")) {
            what = CODE;
            at = read_number(at, end, &code);
        } else if (is_text(name, "flag")) {
            what = FLAG;
            at = read_number(at, end, &send->flag);
        } else if (is_text(name, "opaque")) {
            what = OPAQUE;
            at = read_number(at, end, &send->opaque);
        } else if (is_text(name, "version")) {
            what = VERSION;
            at = read_number(at, end, &unused);
        } else if (is_text(name, "language")) {
            what = LANGUAGE;
            at = read_string(at, end, &value, &escapes);
            if (at != NULL && !is_language(languages, value)) return 0;
        } else if (is_text(name, "extFields")) {
            what = EXT_FIELDS;
            at = read_ext_fields(at, end, fields, &present, send);
        } else if (is_text(name, "serializeTypeCurrentRPC")) {
            what = HOW;
            at = read_string(at, end, &value, &escapes);
            if (at != NULL && escapes) return 0;
        } else {
            return 0;
        }
        if (at == NULL || seen & what) return 0;
        seen |= what;
        more = follows(&at, end);
    } while (more == 1);
    const int all = CODE | FLAG | OPAQUE | VERSION | LANGUAGE | EXT_FIELDS;
    return more == 0 && skip_blanks(at, end) == end && (seen & all) == all && code == SEND_V2 &&
           read_fields(fields, present, send);
}

/* Binary */

static int is_ascii(const uint8_t *at, Py_ssize_t size) {
    uint8_t all = 0;
    for (Py_ssize_t n = 0; n < size; n++) all |= at[n];
    return all < 0x80;
}

static int read_binary(const uint8_t *at, const uint8_t *end, Send *send) {
    Text fields[14];
    uint32_t present = 0;
    if (end - at < BINARY_FIXED + 4 || get16(at) != SEND_V2 || get32(at + 13) != 0) return 0;
    send->opaque = (int32_t)get32(at + 5);
    send->flag = get32(at + 9);
    if (send->opaque < 0 || (Py_ssize_t)get32(at + BINARY_FIXED) != end - at - BINARY_FIXED - 4) return 0;
    at += BINARY_FIXED + 4;
    while (at < end) {
        if (end - at < 2) return 0;
        Py_ssize_t key_size = get16(at);
        const uint8_t *key = at + 2;
        if (end - key < key_size + 4) return 0;
        Py_ssize_t size = get32(key + key_size);
        const uint8_t *value = key + key_size + 4;
        if (end - value < size) return 0;
        at = value + size;
        if (!is_ascii(key, key_size) || !is_ascii(value, size)) return 0;
        if (key_size == 1 && *key >= 'a' && *key <= 'n' && size > 0) {
            int letter = *key - 'a';
            if (present & 1u << letter) return 0;
            present |= 1u << letter;
            fields[letter] = (Text){value, size};
        }
    }
    send->has_escapes = 0;
    return read_fields(fields, present, send);
}

#endif
