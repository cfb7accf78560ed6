/* Plain sends from the bytes of a connection into the log, in one pass: the compiled twin of plain.py, which says
 * what is done and why. Both give the same bytes for the same bytes; what either leaves is for the general path.
 *
 * Everything that is not plain ends the run in front of it: this file decides nothing that somebody has to be told.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#include "structmember.h"

#define SEND_V2 310
#define ONEWAY 2
#define BORN_HOST_V6 0x10
#define STORE_HOST_V6 0x20
#define UNIT_SIZE 20
#define PREFIX_SIZE 8
#define BINARY_FIXED 17
#define SHORT_BODY 512 /* up to here a table is faster than calling the library for the CRC */

/* Bytes, numbers and checksums */

static inline void put16(uint8_t *at, uint32_t value) { at[0] = value >> 8; at[1] = value; }
static inline void put32(uint8_t *at, uint32_t value) { value = __builtin_bswap32(value); memcpy(at, &value, 4); }
static inline void put64(uint8_t *at, uint64_t value) { value = __builtin_bswap64(value); memcpy(at, &value, 8); }
static inline uint32_t get16(const uint8_t *at) { return (uint32_t)at[0] << 8 | at[1]; }
static inline uint32_t get32(const uint8_t *at) { uint32_t value; memcpy(&value, at, 4); return __builtin_bswap32(value); }

static uint32_t crc_table[8][256];

static void make_crc_table(void) {
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        crc_table[0][n] = c;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int t = 1; t < 8; t++)
            crc_table[t][n] = (crc_table[t - 1][n] >> 8) ^ crc_table[0][crc_table[t - 1][n] & 0xFF];
}

static uint32_t crc_of(const uint8_t *at, Py_ssize_t size) {
    uint32_t c = 0xFFFFFFFFu;
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
    return ~c;
}

static inline uint32_t hash_on(uint32_t hash, const uint8_t *at, Py_ssize_t size) {
    for (Py_ssize_t n = 0; n < size; n++) hash = hash * 31 + at[n];
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
        Py_ssize_t room = pile->room ? pile->room : 1024;
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

/* What a header says */

typedef struct { const uint8_t *at; Py_ssize_t size; } Text;

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

/* Properties */

static int hex_of(uint8_t byte) {
    if (byte >= '0' && byte <= '9') return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* Without JSON's escapes; -1 if one of them is wrong, or no ASCII. */
static Py_ssize_t unescape(Text text, uint8_t *out) {
    const uint8_t *at = text.at, *end = at + text.size;
    uint8_t *start = out;
    while (at < end) {
        if (*at != '\\') { *out++ = *at++; continue; }
        if (end - at < 2) return -1;
        uint8_t byte = at[1];
        at += 2;
        switch (byte) {
            case '"': case '\\': case '/': *out++ = byte; break;
            case 'b': *out++ = '\b'; break;
            case 'f': *out++ = '\f'; break;
            case 'n': *out++ = '\n'; break;
            case 'r': *out++ = '\r'; break;
            case 't': *out++ = '\t'; break;
            case 'u': {
                if (end - at < 4 || at[0] != '0' || at[1] != '0') return -1;
                int high = hex_of(at[2]), low = hex_of(at[3]);
                if (high < 0 || high > 7 || low < 0) return -1;
                *out++ = high << 4 | low;
                at += 4;
                break;
            }
            default: return -1;
        }
    }
    return out - start;
}

typedef struct { Text unique_key, keys, tags; } Known;

static inline int ends_with(const uint8_t *start, const uint8_t *end, const char *name, Py_ssize_t size) {
    return end - start >= size && memcmp(end - size, name, size) == 0;
}

/* 1 if the properties are those of a plain message with a unique key, whose known ones are then noted. */
static int scan_properties(const uint8_t *start, Py_ssize_t size, Known *known) {
    const uint8_t *end = start + size, *item = start;
    Text *open = NULL; /* the known property whose value is being passed */
    if (size == 0 || end[-1] != 2) return 0;
    memset(known, 0, sizeof *known);
    for (const uint8_t *at = start; at < end; at++) {
        switch (*at) {
            case 'L':
                if (ends_with(start, at, "DE", 2)) return 0;
                break;
            case 'A':
                if (ends_with(start, at, "TR", 2)) return 0;
                break;
            case 2:
                if (at > start && at[-1] == 1) return 0;
                if (open != NULL) {
                    open->size = at - open->at;
                    open = NULL;
                }
                item = at + 1;
                break;
            case 1: {
                Py_ssize_t name = at - item;
                if (ends_with(start, at, "CLUSTER", 7) || ends_with(start, at, "MSG_REGION", 10) ||
                    ends_with(start, at, "POP_CK", 6) || ends_with(start, at, "_PRIORITY_", 10))
                    return 0;
                if (ends_with(start, at, "UNIQ_KEY", 8)) {
                    if (name != 8 || known->unique_key.at != NULL) return 0;
                    open = &known->unique_key;
                    open->at = at + 1;
                } else if (name == 4 && memcmp(item, "TAGS", 4) == 0) {
                    open = &known->tags;
                    open->at = at + 1;
                } else if (name == 4 && memcmp(item, "KEYS", 4) == 0) {
                    open = &known->keys;
                    open->at = at + 1;
                }
                break;
            }
            default:
                break;
        }
    }
    if (known->unique_key.at == NULL) return 0;
    for (Py_ssize_t n = 0; n < known->unique_key.size; n++) {
        uint8_t byte = known->unique_key.at[n];
        if (!((byte >= '0' && byte <= '9') || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z'))) return 0;
    }
    return 1;
}

/* Lanes: what a queue gets in one run */

typedef struct {
    PyObject *queue; /* NULL: the place is free */
    PyObject *topic;
    PyObject *field; /* the topic with its length in front, as records have it */
    Py_ssize_t topic_size;
    int64_t queue_id;
    uint32_t hash;
    uint32_t magic;
    uint32_t prefix_hash; /* of the topic and "#", with which keys in the index begin */
    int is_touched;
    int64_t first, next, stop, bytes;
    int32_t code;
    Pile units;
} Lane;

typedef struct {
    PyObject_HEAD
    Lane *lanes; /* open addressing; a power of two, at most half full */
    Py_ssize_t lane_room, lane_count;
    Py_ssize_t *touched;
    Py_ssize_t touched_room, touched_count;
    PyObject *languages, *added, *store_host, *json_parts, *binary_parts, *crc32;
    long language, version;
    int64_t kept_flags;
    Py_ssize_t max_body, max_properties;
    int is_indexing;
    Pile answers, hashes, offsets, text;
    PyObject *missing;
} Runs;

static PyObject *name_next_offset, *name_end, *name_max_physical;

static uint32_t lane_hash(const uint8_t *topic, Py_ssize_t size, int64_t queue_id) {
    uint64_t hash = hash_on(17, topic, size);
    hash = (hash ^ (uint64_t)queue_id * 0x9E3779B97F4A7C15ull) * 0xD6E8FEB86659FD93ull;
    return hash >> 32;
}

static Lane *find_lane(Runs *self, const uint8_t *topic, Py_ssize_t size, int64_t queue_id) {
    if (self->lane_room == 0) return NULL;
    uint32_t hash = lane_hash(topic, size, queue_id);
    for (Py_ssize_t at = hash & (self->lane_room - 1);; at = (at + 1) & (self->lane_room - 1)) {
        Lane *lane = &self->lanes[at];
        if (lane->queue == NULL) return NULL;
        if (lane->hash == hash && lane->queue_id == queue_id && lane->topic_size == size &&
            memcmp(PyBytes_AS_STRING(lane->field) + PyBytes_GET_SIZE(lane->field) - size, topic, size) == 0)
            return lane;
    }
}

static void drop_lanes(Runs *self) {
    for (Py_ssize_t at = 0; at < self->lane_room; at++) {
        Lane *lane = &self->lanes[at];
        Py_CLEAR(lane->queue);
        Py_CLEAR(lane->topic);
        Py_CLEAR(lane->field);
        pile_free(&lane->units);
    }
    PyMem_Free(self->lanes);
    self->lanes = NULL;
    self->lane_room = self->lane_count = 0;
}

static PyObject *Runs_clear_lanes(Runs *self, PyObject *Py_UNUSED(unused)) {
    drop_lanes(self);
    Py_RETURN_NONE;
}

static void place_lane(Runs *self, Lane lane) {
    Py_ssize_t at = lane.hash & (self->lane_room - 1);
    while (self->lanes[at].queue != NULL) at = (at + 1) & (self->lane_room - 1);
    self->lanes[at] = lane;
}

static PyObject *Runs_add_lane(Runs *self, PyObject *args) {
    PyObject *topic, *field, *queue;
    long long queue_id;
    unsigned int magic;
    if (!PyArg_ParseTuple(args, "USLIO", &topic, &field, &queue_id, &magic, &queue)) return NULL;
    Py_ssize_t size;
    const uint8_t *name = (const uint8_t *)PyUnicode_AsUTF8AndSize(topic, &size);
    if (name == NULL) return NULL;
    if (!PyUnicode_IS_ASCII(topic) || PyBytes_GET_SIZE(field) < size) {
        PyErr_SetString(PyExc_ValueError, "a lane is for a topic of ASCII and its field in records");
        return NULL;
    }
    if (find_lane(self, name, size, queue_id) != NULL) Py_RETURN_NONE;
    if (2 * (self->lane_count + 1) > self->lane_room) {
        Py_ssize_t room = self->lane_room ? 2 * self->lane_room : 64;
        Lane *old = self->lanes, *lanes = PyMem_Calloc(room, sizeof(Lane));
        if (lanes == NULL) return PyErr_NoMemory();
        Py_ssize_t old_room = self->lane_room;
        self->lanes = lanes;
        self->lane_room = room;
        for (Py_ssize_t at = 0; at < old_room; at++)
            if (old[at].queue != NULL) place_lane(self, old[at]);
        PyMem_Free(old);
    }
    Lane lane = {0};
    lane.queue = Py_NewRef(queue);
    lane.topic = Py_NewRef(topic);
    lane.field = Py_NewRef(field);
    lane.topic_size = size;
    lane.queue_id = queue_id;
    lane.hash = lane_hash(name, size, queue_id);
    lane.magic = magic;
    lane.prefix_hash = hash_on(hash_on(0, name, size), (const uint8_t *)"#", 1);
    place_lane(self, lane);
    self->lane_count++;
    Py_RETURN_NONE;
}

static int attribute(PyObject *object, PyObject *name, int64_t *value) {
    PyObject *number = PyObject_GetAttr(object, name);
    if (number == NULL) return -1;
    *value = PyLong_AsLongLong(number);
    Py_DECREF(number);
    return *value == -1 && PyErr_Occurred() ? -1 : 0;
}

/* 1 if the queue can take records that end up behind its last one, 0 if not, -1 for an error. */
static int touch(Runs *self, Lane *lane, int64_t log_end) {
    int64_t next, end, stop;
    if (attribute(lane->queue, name_next_offset, &next) < 0 || attribute(lane->queue, name_end, &end) < 0 ||
        attribute(lane->queue, name_max_physical, &stop) < 0)
        return -1;
    if (next != end || stop > log_end) return 0;
    if (self->touched_count == self->touched_room) {
        Py_ssize_t room = self->touched_room ? 2 * self->touched_room : 64;
        Py_ssize_t *touched = PyMem_Realloc(self->touched, room * sizeof *touched);
        if (touched == NULL) { PyErr_NoMemory(); return -1; }
        self->touched = touched;
        self->touched_room = room;
    }
    self->touched[self->touched_count++] = lane - self->lanes;
    lane->is_touched = 1;
    lane->first = lane->next = next;
    lane->bytes = 0;
    lane->units.size = 0;
    return 1;
}

static void untouch(Runs *self) {
    for (Py_ssize_t n = 0; n < self->touched_count; n++) self->lanes[self->touched[n]].is_touched = 0;
    self->touched_count = 0;
}

/* Answers */

static uint8_t *put_text(uint8_t *at, const void *text, Py_ssize_t size) {
    memcpy(at, text, size);
    return at + size;
}

static uint8_t *put_part(uint8_t *at, PyObject *parts, Py_ssize_t number) {
    PyObject *part = PyTuple_GET_ITEM(parts, number);
    return put_text(at, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part));
}

static uint8_t *put_decimal(uint8_t *at, uint64_t number) {
    uint8_t digits[20];
    int count = 0;
    do {
        digits[count++] = '0' + number % 10;
        number /= 10;
    } while (number);
    while (count) *at++ = digits[--count];
    return at;
}

static uint8_t *put_hex(uint8_t *at, uint64_t number) {
    for (int shift = 60; shift >= 0; shift -= 4) *at++ = "0123456789ABCDEF"[number >> shift & 15];
    return at;
}

static uint8_t *put_sized(uint8_t *at, uint64_t number) {
    uint8_t *end = put_decimal(at + 4, number);
    put32(at, end - at - 4);
    return end;
}

static Py_ssize_t parts_size(PyObject *parts) {
    Py_ssize_t size = 0;
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(parts); n++) size += PyBytes_GET_SIZE(PyTuple_GET_ITEM(parts, n));
    return size;
}

static int put_answer(Runs *self, int is_binary, const Send *send, Text unique_key, int64_t queue_offset, int64_t offset) {
    PyObject *parts = is_binary ? self->binary_parts : self->json_parts;
    Pile *pile = &self->answers;
    Py_ssize_t before = pile->size;
    /* Six numbers of 20 digits at most, sizes and what a binary header begins with. */
    uint8_t *start = pile_more(pile, parts_size(parts) + unique_key.size + 200);
    if (start == NULL) return -1;
    uint8_t *at = start + PREFIX_SIZE;
    if (is_binary) {
        put16(at, 0);
        at[2] = self->language;
        put16(at + 3, self->version);
        put32(at + 5, send->opaque);
        put32(at + 9, 1);
        put32(at + 13, 0);
        uint8_t *fields = at + BINARY_FIXED + 4;
        at = put_hex(put_part(fields, parts, 0), offset);
        at = put_sized(put_part(at, parts, 1), send->queue_id);
        at = put_sized(put_part(at, parts, 3), queue_offset);
        at = put_part(at, parts, 5);
        put32(at, unique_key.size);
        at = put_text(at + 4, unique_key.at, unique_key.size);
        at = put_part(at, parts, 7);
        put32(fields - 4, at - fields);
    } else {
        at = put_part(at, parts, 0);
        *at++ = '0';
        at = put_decimal(put_part(at, parts, 1), send->queue_id);
        at = put_text(put_part(at, parts, 2), unique_key.at, unique_key.size);
        at = put_hex(put_part(at, parts, 3), offset);
        at = put_decimal(put_part(at, parts, 4), queue_offset);
        at = put_decimal(put_part(at, parts, 5), send->opaque);
        at = put_part(at, parts, 6);
    }
    Py_ssize_t size = at - start;
    put32(start, size - 4);
    put32(start + 4, (size - PREFIX_SIZE) | (is_binary ? 1u << 24 : 0));
    pile->size = before + size;
    return 0;
}

/* The index */

static int put_key(Runs *self, uint32_t hash, Text key, int64_t offset) {
    uint8_t *hash_at = pile_more(&self->hashes, 4), *offset_at = pile_more(&self->offsets, 8);
    if (hash_at == NULL || offset_at == NULL) return -1;
    uint32_t value = index_hash(hash_on(hash, key.at, key.size));
    memcpy(hash_at, &value, 4);
    memcpy(offset_at, &offset, 8);
    return 0;
}

static int put_keys(Runs *self, const Lane *lane, const Known *known, int64_t offset) {
    uint32_t hash = lane->prefix_hash;
    if (put_key(self, hash, known->unique_key, offset) < 0) return -1;
    if (known->keys.at != NULL) {
        const uint8_t *at = known->keys.at, *end = at + known->keys.size;
        while (at <= end) {
            const uint8_t *blank = memchr(at, ' ', end - at);
            if (blank == NULL) blank = end;
            if (blank > at && put_key(self, hash, (Text){at, blank - at}, offset) < 0) return -1;
            at = blank + 1;
        }
    }
    if (known->tags.at != NULL) return put_key(self, hash_on(hash, (const uint8_t *)"T#", 2), known->tags, offset);
    return 0;
}

/* One message: 1 if it was taken, 0 if it is not plain, -1 for an error */

typedef struct {
    uint8_t *log;
    int64_t position, limit, base, now;
    const uint8_t *born_host;
    Py_ssize_t born_size;
    int64_t last_offset;
} Place;

static int body_crc(Runs *self, const uint8_t *body, Py_ssize_t size, uint32_t *crc) {
    if (size <= SHORT_BODY) {
        *crc = crc_of(body, size) & 0x7FFFFFFFu;
        return 0;
    }
    PyObject *view = PyMemoryView_FromMemory((char *)body, size, PyBUF_READ);
    if (view == NULL) return -1;
    PyObject *number = PyObject_CallOneArg(self->crc32, view);
    Py_DECREF(view);
    if (number == NULL) return -1;
    *crc = (uint32_t)PyLong_AsUnsignedLongMask(number) & 0x7FFFFFFFu;
    Py_DECREF(number);
    return PyErr_Occurred() ? -1 : 0;
}

static int take_one(Runs *self, const uint8_t *header, Py_ssize_t header_size, int is_binary, const uint8_t *body,
                    Py_ssize_t body_size, Place *place) {
    Send send;
    Known known;
    if (body_size == 0 || body_size > self->max_body) return 0;
    if (!(is_binary ? read_binary(header, header + header_size, &send)
                    : read_json(header, header + header_size, self->languages, &send)))
        return 0;
    if (send.flag & ~(int64_t)ONEWAY) return 0;
    Text properties = send.properties;
    if (send.has_escapes) {
        self->text.size = 0;
        uint8_t *text = pile_more(&self->text, properties.size);
        if (text == NULL) return -1;
        Py_ssize_t size = unescape(properties, text);
        if (size < 0) return 0;
        properties = (Text){text, size};
    }
    if (!scan_properties(properties.at, properties.size, &known)) return 0;
    Lane *lane = find_lane(self, send.topic.at, send.topic.size, send.queue_id);
    if (lane == NULL) {
        PyObject *missing = Py_BuildValue("(s#L)", (const char *)send.topic.at, send.topic.size, (long long)send.queue_id);
        if (missing == NULL) return -1;
        Py_XSETREF(self->missing, missing);
        return 0;
    }
    Py_ssize_t added = PyBytes_GET_SIZE(self->added), store_size = PyBytes_GET_SIZE(self->store_host);
    Py_ssize_t properties_size = properties.size + added, field_size = PyBytes_GET_SIZE(lane->field);
    int64_t size = 72 + place->born_size + store_size + body_size + field_size + 2 + properties_size;
    if (properties_size > self->max_properties || place->position + size > place->limit) return 0;
    uint32_t crc;
    if (body_crc(self, body, body_size, &crc) < 0) return -1;
    int64_t offset = place->base + place->position;
    if (!lane->is_touched) {
        int can = touch(self, lane, offset);
        if (can <= 0) return can;
    }
    uint8_t *unit = pile_more(&lane->units, UNIT_SIZE);
    if (unit == NULL) return -1;
    if (!(send.flag & ONEWAY) && put_answer(self, is_binary, &send, known.unique_key, lane->next, offset) < 0) return -1;
    if (self->is_indexing && put_keys(self, lane, &known, offset) < 0) return -1;
    int32_t code = known.tags.at != NULL ? (int32_t)hash_on(0, known.tags.at, known.tags.size) : 0;
    uint32_t flags = (uint32_t)(send.sys_flag & self->kept_flags) & ~(uint32_t)(BORN_HOST_V6 | STORE_HOST_V6);
    if (place->born_size == 20) flags |= BORN_HOST_V6;
    if (store_size == 20) flags |= STORE_HOST_V6;
    uint8_t *at = place->log + place->position;
    put32(at, size);
    put32(at + 4, lane->magic);
    put32(at + 8, crc);
    put32(at + 12, send.queue_id);
    put32(at + 16, send.message_flag);
    put64(at + 20, lane->next);
    put64(at + 28, offset);
    put32(at + 36, flags);
    put64(at + 40, send.born);
    at = put_text(at + 48, place->born_host, place->born_size);
    put64(at, place->now);
    at = put_text(at + 8, PyBytes_AS_STRING(self->store_host), store_size);
    put32(at, send.reconsumed);
    put64(at + 4, 0);
    put32(at + 12, body_size);
    at = put_text(at + 16, body, body_size);
    at = put_text(at, PyBytes_AS_STRING(lane->field), field_size);
    put16(at, properties_size);
    at = put_text(at + 2, properties.at, properties.size);
    put_text(at, PyBytes_AS_STRING(self->added), added);
    put64(unit, offset);
    put32(unit + 8, size);
    put64(unit + 12, (uint64_t)(int64_t)code);
    lane->next++;
    lane->bytes += size;
    lane->code = code;
    place->position += size;
    lane->stop = place->base + place->position;
    place->last_offset = offset;
    return 1;
}

static PyObject *lane_runs(Runs *self) {
    PyObject *runs = PyList_New(self->touched_count);
    if (runs == NULL) return NULL;
    for (Py_ssize_t n = 0; n < self->touched_count; n++) {
        Lane *lane = &self->lanes[self->touched[n]];
        PyObject *run = Py_BuildValue("(OOLLy#LiL)", lane->queue, lane->topic, (long long)lane->queue_id,
                                      (long long)lane->first, (char *)lane->units.data, lane->units.size,
                                      (long long)lane->stop, lane->code, (long long)lane->bytes);
        if (run == NULL) { Py_DECREF(runs); return NULL; }
        PyList_SET_ITEM(runs, n, run);
    }
    return runs;
}

static PyObject *Runs_take(Runs *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 7) {
        PyErr_SetString(PyExc_TypeError, "take(data, log, position, limit, base, now, born_host)");
        return NULL;
    }
    Place place = {0};
    place.position = PyLong_AsLongLong(args[2]);
    place.limit = PyLong_AsLongLong(args[3]);
    place.base = PyLong_AsLongLong(args[4]);
    place.now = PyLong_AsLongLong(args[5]);
    if (PyErr_Occurred()) return NULL;
    if (!PyBytes_Check(args[0]) || !PyBytes_Check(args[6])) {
        PyErr_SetString(PyExc_TypeError, "data and born_host are bytes");
        return NULL;
    }
    place.born_host = (uint8_t *)PyBytes_AS_STRING(args[6]);
    place.born_size = PyBytes_GET_SIZE(args[6]);
    if (place.born_size != 8 && place.born_size != 20) {
        PyErr_SetString(PyExc_ValueError, "an address and port have 8 or 20 bytes");
        return NULL;
    }
    Py_buffer log;
    if (PyObject_GetBuffer(args[1], &log, PyBUF_WRITABLE) < 0) return NULL;
    place.log = log.buf;
    if (place.limit > log.len) place.limit = log.len;
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(args[0]), *at = start, *end = start + PyBytes_GET_SIZE(args[0]);
    self->answers.size = self->hashes.size = self->offsets.size = 0;
    untouch(self);
    Py_CLEAR(self->missing);
    long long messages = 0;
    int taken = 1;
    while (end - at >= PREFIX_SIZE) {
        uint32_t length = get32(at), word = get32(at + 4);
        Py_ssize_t header_size = word & 0xFFFFFF;
        if (length > INT32_MAX || header_size + 4 > (Py_ssize_t)length || word >> 24 > 1 || end - at - 4 < (Py_ssize_t)length) break;
        const uint8_t *body = at + PREFIX_SIZE + header_size;
        taken = take_one(self, at + PREFIX_SIZE, header_size, word >> 24, body, at + 4 + length - body, &place);
        if (taken != 1) break;
        at += 4 + (Py_ssize_t)length;
        messages++;
    }
    PyBuffer_Release(&log);
    PyObject *result = NULL;
    if (taken >= 0) {
        PyObject *runs = lane_runs(self);
        if (runs != NULL)
            result = Py_BuildValue("(nLLNNNNL)", (Py_ssize_t)(at - start), messages, (long long)place.position,
                                   pile_bytes(&self->answers), runs, pile_bytes(&self->hashes),
                                   pile_bytes(&self->offsets), (long long)place.last_offset);
    }
    untouch(self);
    return result;
}

/* The type */

static int Runs_init(Runs *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"languages", "json_parts", "binary_parts", "language", "version", "added", "store_host",
                            "kept_flags", "max_body", "max_properties", "is_indexing", "crc32", NULL};
    PyObject *languages, *json_parts, *binary_parts, *added, *store_host, *crc32;
    long long kept_flags;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$O!O!O!llSSLnnpO", names, &PyTuple_Type, &languages, &PyTuple_Type,
                                     &json_parts, &PyTuple_Type, &binary_parts, &self->language, &self->version, &added,
                                     &store_host, &kept_flags, &self->max_body, &self->max_properties,
                                     &self->is_indexing, &crc32))
        return -1;
    PyObject *all[] = {languages, json_parts, binary_parts};
    for (int n = 0; n < 3; n++)
        for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(all[n]); at++)
            if (!PyBytes_Check(PyTuple_GET_ITEM(all[n], at))) {
                PyErr_SetString(PyExc_TypeError, "languages and parts are bytes");
                return -1;
            }
    if (PyTuple_GET_SIZE(json_parts) != 7 || PyTuple_GET_SIZE(binary_parts) != 8) {
        PyErr_SetString(PyExc_ValueError, "an answer has 6 places in JSON and 7 in binary");
        return -1;
    }
    Py_XSETREF(self->languages, Py_NewRef(languages));
    Py_XSETREF(self->json_parts, Py_NewRef(json_parts));
    Py_XSETREF(self->binary_parts, Py_NewRef(binary_parts));
    Py_XSETREF(self->added, Py_NewRef(added));
    Py_XSETREF(self->store_host, Py_NewRef(store_host));
    Py_XSETREF(self->crc32, Py_NewRef(crc32));
    self->kept_flags = kept_flags;
    return 0;
}

static int Runs_traverse(Runs *self, visitproc visit, void *arg) {
    for (Py_ssize_t at = 0; at < self->lane_room; at++) Py_VISIT(self->lanes[at].queue);
    Py_VISIT(self->crc32);
    return 0;
}

static int Runs_clear(Runs *self) {
    drop_lanes(self);
    Py_CLEAR(self->crc32);
    return 0;
}

static void Runs_dealloc(Runs *self) {
    PyObject_GC_UnTrack(self);
    Runs_clear(self);
    Py_XDECREF(self->languages);
    Py_XDECREF(self->json_parts);
    Py_XDECREF(self->binary_parts);
    Py_XDECREF(self->added);
    Py_XDECREF(self->store_host);
    Py_XDECREF(self->missing);
    pile_free(&self->answers);
    pile_free(&self->hashes);
    pile_free(&self->offsets);
    pile_free(&self->text);
    PyMem_Free(self->touched);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *Runs_get_missing(Runs *self, void *Py_UNUSED(unused)) {
    return Py_NewRef(self->missing == NULL ? Py_None : self->missing);
}

static PyObject *Runs_get_lane_count(Runs *self, void *Py_UNUSED(unused)) { return PyLong_FromSsize_t(self->lane_count); }

static PyMethodDef Runs_methods[] = {
    {"take", (PyCFunction)(void (*)(void))Runs_take, METH_FASTCALL, "Store the plain sends that data begins with."},
    {"add_lane", (PyCFunction)Runs_add_lane, METH_VARARGS, "Let sends to a queue be stored."},
    {"clear_lanes", (PyCFunction)Runs_clear_lanes, METH_NOARGS, "Let none be stored any more."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef Runs_getset[] = {
    {"missing", (getter)Runs_get_missing, NULL, "The topic and queue whose lane the last run ended for.", NULL},
    {"lane_count", (getter)Runs_get_lane_count, NULL, "How many queues have a lane.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject RunsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.kernel._native.SendRuns",
    .tp_doc = "The compiled twin of orbitmq.kernel.plain.SendRuns.",
    .tp_basicsize = sizeof(Runs),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)Runs_init,
    .tp_dealloc = (destructor)Runs_dealloc,
    .tp_traverse = (traverseproc)Runs_traverse,
    .tp_clear = (inquiry)Runs_clear,
    .tp_methods = Runs_methods,
    .tp_getset = Runs_getset,
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_native", .m_doc = "Plain sends into the log, compiled.", .m_size = -1};

PyMODINIT_FUNC PyInit__native(void) {
    make_crc_table();
    name_next_offset = PyUnicode_InternFromString("next_offset");
    name_end = PyUnicode_InternFromString("end");
    name_max_physical = PyUnicode_InternFromString("max_physical");
    if (name_next_offset == NULL || name_end == NULL || name_max_physical == NULL || PyType_Ready(&RunsType) < 0) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made == NULL) return NULL;
    if (PyModule_AddObjectRef(made, "SendRuns", (PyObject *)&RunsType) < 0) { Py_DECREF(made); return NULL; }
    return made;
}
