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

/* Text */

static int is_ascii(const uint8_t *at, Py_ssize_t size) {
    uint8_t all = 0;
    for (Py_ssize_t n = 0; n < size; n++) all |= at[n];
    return all < 0x80;
}

static inline int is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

/* The size of a valid UTF-8 sequence at `at`: 0 where there is none. No overlong forms, no surrogates. */
static inline int sequence_size(const uint8_t *at, Py_ssize_t left) {
    uint8_t first = at[0];
    if (first < 0x80) return 1;
    if (first < 0xC2 || first > 0xF4 || left < 2 || !is_continuation(at[1])) return 0;
    if (first < 0xE0) return 2;
    if (left < 3 || !is_continuation(at[2])) return 0;
    if (first < 0xF0) return (first == 0xE0 && at[1] < 0xA0) || (first == 0xED && at[1] > 0x9F) ? 0 : 3;
    if (left < 4 || !is_continuation(at[3])) return 0;
    return (first == 0xF0 && at[1] < 0x90) || (first == 0xF4 && at[1] > 0x8F) ? 0 : 4;
}

static int is_utf8(const uint8_t *at, Py_ssize_t size) {
    while (size > 0) {
        int step = sequence_size(at, size);
        if (step == 0) return 0;
        at += step;
        size -= step;
    }
    return 1;
}

/* JSON */

static inline const uint8_t *skip_blanks(const uint8_t *at, const uint8_t *end) {
    while (at < end && *at <= ' ' && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')) at++;
    return at;
}

#define EACH_BYTE 0x0101010101010101ULL

/* Of eight characters, those that plain text has not: quotes, backslashes and control characters. The lowest bit that is
 * set belongs to the first of them; bits above it may be wrong. */
static inline uint64_t special_of(uint64_t text) {
    const uint64_t quotes = text ^ EACH_BYTE * '"', backslashes = text ^ EACH_BYTE * '\\';
    return (((quotes - EACH_BYTE) & ~quotes) | ((backslashes - EACH_BYTE) & ~backslashes) | ((text - EACH_BYTE * 0x20) & ~text)) &
           EACH_BYTE * 0x80;
}

/* Parse a string at its opening quote, eight characters a step; returns what follows its closing one, or NULL. */
static inline const uint8_t *read_string(const uint8_t *at, const uint8_t *end, FieldText *string) {
    uint64_t all = 0;
    if (at >= end || *at != '"') return NULL;
    string->text.at = ++at;
    string->escapes = 0;
    while (at < end) {
        if (end - at >= 8) {
            const uint64_t text = little64(at), special = special_of(text);
            if (special == 0) {
                all |= text;
                at += 8;
                continue;
            }
            const int plain = __builtin_ctzll(special) & ~7; /* in bits */
            all |= text & ((1ULL << plain) - 1);
            at += plain / 8;
        }
        uint8_t byte = *at;
        if (byte == '"') {
            string->text.size = at - string->text.at;
            string->non_ascii = (all & EACH_BYTE * 0x80) != 0;
            return string->non_ascii && !is_utf8(string->text.at, string->text.size) ? NULL : at + 1;
        }
        if (byte < 0x20) return NULL;
        all |= byte;
        at++;
        if (byte == '\\') {
            string->escapes = 1;
            /* Behind a backslash a multi-byte character would be no escape; its bytes count as text all the same. */
            if (at < end) all |= *at;
            at++;
        }
    }
    return NULL;
}

static inline int is_letter(uint8_t byte) { return (uint8_t)((byte | 0x20) - 'a') < 26; }

static inline const uint8_t *read_name(const uint8_t *at, const uint8_t *end, Slice *name) {
    /* Fields of the shortened requests have one letter. */
    if (end - at > 4 && at[0] == '"' && at[2] == '"' && at[3] == ':' && is_letter(at[1])) {
        *name = (Slice){at + 1, 1};
        return skip_blanks(at + 4, end);
    }
    FieldText string;
    at = read_string(skip_blanks(at, end), end, &string);
    if (at == NULL || string.escapes || string.non_ascii) return NULL;
    *name = string.text;
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

static const uint8_t *read_word(const uint8_t *at, const uint8_t *end, const char *word) {
    Py_ssize_t size = strlen(word);
    return end - at >= size && memcmp(at, word, size) == 0 ? at + size : NULL;
}

/* An integer as its text, which is what the Python path turns it into. */
static const uint8_t *read_integer(const uint8_t *at, const uint8_t *end, Slice *text) {
    const uint8_t *start = at;
    if (at < end && *at == '-') at++;
    const uint8_t *digits = at;
    while (at < end && *at >= '0' && *at <= '9') at++;
    *text = (Slice){start, at - start};
    if (at == digits || at - digits > 18 || (*digits == '0' && (at - digits > 1 || digits > start))) return NULL;
    return at;
}

/* A value that becomes text: a string, or a number or boolean without quotes, as the Node client writes them. Text at
 * NULL stands for null, which counts as absent. */
static inline const uint8_t *read_value(const uint8_t *at, const uint8_t *end, FieldText *string) {
    if (at >= end) return NULL;
    if (*at == '"') return read_string(at, end, string);
    const uint8_t *start = at;
    string->escapes = string->non_ascii = 0;
    switch (*at) {
        case 't': at = read_word(at, end, "true"); break;
        case 'f': at = read_word(at, end, "false"); break;
        case 'n':
            string->text = (Slice){NULL, 0};
            return read_word(at, end, "null");
        default: return read_integer(at, end, &string->text);
    }
    if (at != NULL) string->text = (Slice){start, at - start};
    return at;
}

/* Enter the field of a request; 0 if it came twice, or under both of its names. */
static inline int enter_field(Request *request, int number, const FieldText *string) {
    uint32_t is_long = number >= LONG_NAME;
    uint32_t bit = 1u << (is_long ? number - LONG_NAME : number);
    if (request->present & bit) return 0;
    request->present |= bit;
    if (is_long) request->long_names |= bit;
    if (string->escapes) request->escaped |= bit;
    if (string->non_ascii) request->non_ascii |= bit;
    request->fields[is_long ? number - LONG_NAME : number] = string->text;
    return 1;
}

static inline void clear_fields(Request *request) {
    request->present = request->escaped = request->non_ascii = request->long_names = 0;
}

static inline const uint8_t *read_ext_fields(const uint8_t *at, const uint8_t *end, WhichField which, Request *request) {
    Slice name;
    FieldText value;
    int more;
    uint32_t nulls = 0;
    if (at >= end || *at != '{') return NULL;
    at = skip_blanks(at + 1, end);
    if (at < end && *at == '}') return at + 1;
    do {
        at = read_name(at, end, &name);
        if (at == NULL) return NULL;
        at = read_value(at, end, &value);
        if (at == NULL) return NULL;
        int number = which(name);
        if (number >= 0) {
            /* Of a field that comes twice the last value counts, be it null: left to the Python path. */
            uint32_t bit = 1u << (number & (LONG_NAME - 1));
            if (nulls & bit) return NULL;
            if (value.text.at == NULL) {
                if (request->present & bit) return NULL;
                nulls |= bit;
            } else if (!enter_field(request, number, &value)) {
                return NULL;
            }
        } else if (value.escapes) {
            return NULL;
        }
        more = follows(&at, end);
    } while (more == 1);
    return more == 0 ? at : NULL;
}

static const uint8_t *read_number(const uint8_t *at, const uint8_t *end, int64_t *value) {
    Slice text;
    at = read_integer(at, end, &text);
    return at == NULL || *text.at == '-' || !int32_of(text, value) ? NULL : at;
}

enum { CODE = 1, FLAG = 2, OPAQUE = 4, VERSION = 8, LANGUAGE = 16, EXT_FIELDS = 32, HOW = 64, REMARK = 128 };

static int is_language(PyObject *languages, Slice text) {
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(languages); n++) {
        PyObject *name = PyTuple_GET_ITEM(languages, n);
        if (PyBytes_GET_SIZE(name) == text.size && memcmp(PyBytes_AS_STRING(name), text.at, text.size) == 0) return 1;
    }
    return 0;
}

/* Parse a header that may have no fields. */
static inline int read_json_head(const uint8_t *at, const uint8_t *end, PyObject *languages, WhichField which, Request *request) {
    Slice name;
    FieldText value;
    int64_t unused;
    int seen = 0, what, more;
    request->flag = request->opaque = 0; /* of requests without */
    clear_fields(request);
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
            at = read_string(at, end, &value);
            if (at != NULL && !is_language(languages, value.text)) return 0;
        } else if (slice_equals(name, "extFields")) {
            what = EXT_FIELDS;
            at = read_ext_fields(at, end, which, request);
        } else if (slice_equals(name, "serializeTypeCurrentRPC")) {
            what = HOW;
            at = read_value(at, end, &value);
        } else if (slice_equals(name, "remark")) {
            what = REMARK;
            at = read_value(at, end, &value);
        } else {
            return 0;
        }
        /* The value of an escape is checked where it is used, so text that is not used must have none. */
        if (at == NULL || seen & what || (what & (HOW | REMARK) && value.escapes)) return 0;
        seen |= what;
        more = follows(&at, end);
    } while (more == 1);
    const int needed = CODE | OPAQUE;
    request->has_fields = (seen & EXT_FIELDS) != 0;
    return more == 0 && skip_blanks(at, end) == end && (seen & needed) == needed;
}

static inline int read_json(const uint8_t *at, const uint8_t *end, PyObject *languages, WhichField which, Request *request) {
    return read_json_head(at, end, languages, which, request) && request->has_fields;
}

/* Behind a JSON value of any kind, or NULL. Its inside is not checked: the code that serves the request parses it. */
static const uint8_t *skip_value(const uint8_t *at, const uint8_t *end) {
    int depth = 0;
    for (; at < end; at++) {
        uint8_t byte = *at;
        if (byte == '"') {
            FieldText string;
            at = read_string(at, end, &string);
            if (at == NULL) return NULL;
            if (depth == 0) return at;
            at--;
        } else if (byte == '{' || byte == '[') {
            depth++;
        } else if (byte == '}' || byte == ']') {
            if (depth == 0) return at;
            if (--depth == 0) return at + 1;
        } else if (byte == ',' && depth == 0) {
            return at;
        }
    }
    return NULL;
}

/* The code of a request whose JSON header does not begin with it; -1 if there is none. */
static int64_t request_code_of(const uint8_t *at, const uint8_t *end) {
    Slice name;
    int64_t code;
    int more;
    at = skip_blanks(at, end);
    if (at >= end || *at++ != '{') return -1;
    do {
        at = read_name(at, end, &name);
        if (at == NULL) return -1;
        if (slice_equals(name, "code")) return read_number(at, end, &code) == NULL ? -1 : code;
        at = skip_value(at, end);
        if (at == NULL) return -1;
        more = follows(&at, end);
    } while (more == 1);
    return -1;
}

/* request_code(data, at): the header begins at `at`, behind its size. */
static PyObject *request_code(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "request_code(data, at)");
        return NULL;
    }
    Py_ssize_t at = PyLong_AsSsize_t(args[1]), size = PyBytes_GET_SIZE(args[0]);
    if (at == -1 && PyErr_Occurred()) return NULL;
    if (at < PREFIX_SIZE || at > size) return PyLong_FromLong(-1);
    const uint8_t *header = (const uint8_t *)PyBytes_AS_STRING(args[0]) + at;
    Py_ssize_t header_size = get32(header - 4) & 0xFFFFFF;
    if (header_size > size - at) return PyLong_FromLong(-1);
    return PyLong_FromLongLong(request_code_of(header, header + header_size));
}

/* Binary */

/* The first field of a binary header; NULL if its parts do not fill it. */
static const uint8_t *binary_fields(const uint8_t *header, const uint8_t *end) {
    if (end - header < BINARY_FIXED + 4) return NULL;
    Py_ssize_t remark_size = get32(header + 13);
    if (remark_size > end - header - BINARY_FIXED - 4) return NULL;
    const uint8_t *at = header + BINARY_FIXED + remark_size;
    return (Py_ssize_t)get32(at) == end - at - 4 ? at + 4 : NULL;
}

/* Read a field of a binary header; returns what follows it, or NULL. */
static inline const uint8_t *read_binary_field(const uint8_t *at, const uint8_t *end, Slice *name, FieldText *string) {
    if (end - at < 2) return NULL;
    *name = (Slice){at + 2, get16(at)};
    if (end - name->at < name->size + 4) return NULL;
    Slice value = {name->at + name->size + 4, get32(name->at + name->size)};
    if (end - value.at < value.size) return NULL;
    *string = (FieldText){value, 0, !is_ascii(value.at, value.size)};
    if (!is_ascii(name->at, name->size) || (string->non_ascii && !is_utf8(value.at, value.size))) return NULL;
    return value.at + value.size;
}

static int read_binary(const uint8_t *at, const uint8_t *end, WhichField which, Request *request) {
    Slice name;
    FieldText string;
    const uint8_t *header = at;
    clear_fields(request);
    at = binary_fields(header, end);
    if (at == NULL) return 0;
    request->code = get16(header);
    request->opaque = (int32_t)get32(header + 5);
    request->flag = get32(header + 9);
    if (request->opaque < 0) return 0;
    while (at < end) {
        at = read_binary_field(at, end, &name, &string);
        if (at == NULL) return 0;
        int number = which(name);
        if (number >= 0 && string.text.size > 0 && !enter_field(request, number, &string)) return 0;
    }
    return 1;
}
