/* Remoting header of a request, JSON or binary, as clients write it; an unusual one is not parsed. */
#include "protocol/remoting_header.h"

static int number_of(Slice text, int64_t least, int64_t *value) {
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

static int int32_of(Slice text, int64_t *value) {
    return number_of(text, INT32_MIN, value) && *value >= INT32_MIN && *value <= INT32_MAX;
}

static int slice_equals(Slice text, const char *other) {
    return text.size == (Py_ssize_t)strlen(other) && memcmp(text.at, other, text.size) == 0;
}

/* JSON */

static inline const uint8_t *skip_blanks(const uint8_t *at, const uint8_t *end) {
    while (at < end && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) at++;
    return at;
}

/* Parse a string of ASCII at its opening quote; returns what follows its closing one, or NULL. */
static inline const uint8_t *read_string(const uint8_t *at, const uint8_t *end, Slice *text, int *escapes) {
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

static const uint8_t *read_name(const uint8_t *at, const uint8_t *end, Slice *name) {
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

static const uint8_t *read_ext_fields(const uint8_t *at, const uint8_t *end, WhichField which, Request *request) {
    Slice name, value;
    int escapes, more;
    if (at >= end || *at != '{') return NULL;
    at++;
    do {
        at = read_name(at, end, &name);
        if (at == NULL) return NULL;
        at = read_string(at, end, &value, &escapes);
        if (at == NULL) return NULL;
        int number = which(name);
        if (number >= 0) {
            if (request->present & 1u << number) return NULL;
            request->present |= 1u << number;
            request->escaped |= (uint32_t)escapes << number;
            request->fields[number] = value;
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
    Slice text = {start, at - start};
    if ((text.size > 1 && *start == '0') || !int32_of(text, value)) return NULL;
    return at;
}

enum { CODE = 1, FLAG = 2, OPAQUE = 4, VERSION = 8, LANGUAGE = 16, EXT_FIELDS = 32, HOW = 64 };

static int is_language(PyObject *languages, Slice text) {
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(languages); n++) {
        PyObject *name = PyTuple_GET_ITEM(languages, n);
        if (PyBytes_GET_SIZE(name) == text.size && memcmp(PyBytes_AS_STRING(name), text.at, text.size) == 0) return 1;
    }
    return 0;
}

static int read_json(const uint8_t *at, const uint8_t *end, PyObject *languages, WhichField which, Request *request) {
    Slice name, value;
    int64_t unused;
    int seen = 0, what, escapes, more;
    request->present = request->escaped = 0;
    at = skip_blanks(at, end);
    if (at >= end || *at++ != '{') return 0;
    do {
        at = read_name(at, end, &name);
        if (at == NULL) return 0;
        if (slice_equals(name, "code")) {
            what = CODE;
            at = read_number(at, end, &request->code);
        } else if (slice_equals(name, "flag")) {
            what = FLAG;
            at = read_number(at, end, &request->flag);
        } else if (slice_equals(name, "opaque")) {
            what = OPAQUE;
            at = read_number(at, end, &request->opaque);
        } else if (slice_equals(name, "version")) {
            what = VERSION;
            at = read_number(at, end, &unused);
        } else if (slice_equals(name, "language")) {
            what = LANGUAGE;
            at = read_string(at, end, &value, &escapes);
            if (at != NULL && !is_language(languages, value)) return 0;
        } else if (slice_equals(name, "extFields")) {
            what = EXT_FIELDS;
            at = read_ext_fields(at, end, which, request);
        } else if (slice_equals(name, "serializeTypeCurrentRPC")) {
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
    return more == 0 && skip_blanks(at, end) == end && (seen & all) == all;
}

/* Binary */

static int is_ascii(const uint8_t *at, Py_ssize_t size) {
    uint8_t all = 0;
    for (Py_ssize_t n = 0; n < size; n++) all |= at[n];
    return all < 0x80;
}

static int read_binary(const uint8_t *at, const uint8_t *end, WhichField which, Request *request) {
    request->present = request->escaped = 0;
    if (end - at < BINARY_FIXED + 4 || get32(at + 13) != 0) return 0;
    request->code = get16(at);
    request->opaque = (int32_t)get32(at + 5);
    request->flag = get32(at + 9);
    if (request->opaque < 0 || (Py_ssize_t)get32(at + BINARY_FIXED) != end - at - BINARY_FIXED - 4) return 0;
    at += BINARY_FIXED + 4;
    while (at < end) {
        if (end - at < 2) return 0;
        Slice name = {at + 2, get16(at)};
        if (end - name.at < name.size + 4) return 0;
        Slice value = {name.at + name.size + 4, get32(name.at + name.size)};
        if (end - value.at < value.size) return 0;
        at = value.at + value.size;
        if (!is_ascii(name.at, name.size) || !is_ascii(value.at, value.size)) return 0;
        int number = which(name);
        if (number >= 0 && value.size > 0) {
            if (request->present & 1u << number) return 0;
            request->present |= 1u << number;
            request->fields[number] = value;
        }
    }
    return 1;
}
