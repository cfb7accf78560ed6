/* Deferred messages: timers, delay levels and half messages, stored under a system topic until they are due. Twin of
 * the deferral in broker/timer/service.py, broker/schedule/service.py and broker/transaction/processor.py; what these
 * refuse or rewrite is left to them. */
#include "broker/deferral.h"
#include "protocol/remoting_header.h"
#include "protocol/send_header.h"
#include "store/route_table.h"

static int contains(Slice text, const char *piece) {
    return memmem(text.at, text.size, piece, strlen(piece)) != NULL;
}

static int is_true(Slice text) {
    return text.size == 4 && (text.at[0] | 0x20) == 't' && (text.at[1] | 0x20) == 'r' && (text.at[2] | 0x20) == 'u' &&
           (text.at[3] | 0x20) == 'e';
}

/* A number in its usual form: digits, the first of which is not 0. */
static int is_count(Slice text, int64_t *value) { return text.size && *text.at != '0' && number_of(text, 0, value); }

static int read_time(const Batcher *self, Slice text, int64_t unit, int64_t now, Deferral *deferral) {
    int64_t number;
    if (!is_count(text, &number)) return 0;
    if (unit) {
        if (number > self->longest) return 0;
        number = now + number * unit;
    }
    if (number <= now || number - now > self->longest) return 0;
    deferral->kind = DEFER_TIMER;
    deferral->out = (number - 1) / self->precision * self->precision;
    return 1;
}

/* Find the deferral that properties ask for, which have a unique key and may contain a delay, a time or a transaction.
 * 0 if this is for the Python path. */
static int read_deferral(const Batcher *self, Slice properties, int64_t now, Deferral *deferral) {
    Slice delay = {NULL, 0}, time = {NULL, 0}, half = {NULL, 0};
    int64_t unit = 0;
    const uint8_t *item = properties.at, *end = item + properties.size;
    memset(deferral, 0, sizeof *deferral);
    while (item < end) {
        const uint8_t *stop = memchr(item, 2, end - item), *middle = memchr(item, 1, stop - item);
        /* Properties without name or value are dropped, which changes the string. */
        if (middle == NULL || middle == item || middle + 1 == stop) return 0;
        Slice name = {item, middle - item}, value = {middle + 1, stop - middle - 1}, *which = NULL;
        if (slice_equals(name, "DELAY")) which = &delay;
        else if (slice_equals(name, "TIMER_DELIVER_MS")) which = &time;
        else if (slice_equals(name, "TIMER_DELAY_SEC")) which = &time, unit = 1000;
        else if (slice_equals(name, "TIMER_DELAY_MS")) which = &time, unit = 1;
        else if (slice_equals(name, "TRAN_MSG")) which = &half;
        else if (slice_equals(name, "TRACE_ON")) return 0;
        if (which != NULL) {
            if (which->at != NULL) return 0;
            *which = value;
        }
        item = stop + 1;
    }
    int is_half = half.at != NULL && is_true(half);
    if (!is_half && delay.at == NULL && time.at == NULL) return 1;
    if (is_half + (delay.at != NULL) + (time.at != NULL) > 1 || contains(properties, "REAL_")) return 0;
    if (is_half) {
        deferral->kind = DEFER_HALF;
        return !contains(properties, "__transactionId__");
    }
    if (delay.at != NULL) {
        deferral->kind = DEFER_DELAY_LEVEL;
        if (!is_count(delay, &deferral->level) || deferral->level > PyTuple_GET_SIZE(self->delays)) return 0;
        deferral->delay = PyLong_AsLongLong(PyTuple_GET_ITEM(self->delays, deferral->level - 1));
        return !contains(properties, "TIMER_DEL");
    }
    return read_time(self, time, unit, now, deferral) && !contains(properties, "TIMER_OUT_MS") &&
           !contains(properties, "TIMER_DEL_UNIQKEY");
}

static int64_t deferral_queue(const Deferral *deferral) { return deferral->kind == DEFER_DELAY_LEVEL ? deferral->level - 1 : 0; }

static uint8_t *put_bytes(uint8_t *at, const void *text, Py_ssize_t size) {
    if (size) memcpy(at, text, size); /* an empty slice may have no address */
    return at + size;
}

static uint8_t *put_part(uint8_t *at, PyObject *parts, Py_ssize_t number) {
    PyObject *part = PyTuple_GET_ITEM(parts, number);
    return put_bytes(at, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part));
}

static int are_bytes(PyObject *parts) {
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(parts); n++)
        if (!PyBytes_Check(PyTuple_GET_ITEM(parts, n))) {
            PyErr_SetString(PyExc_TypeError, "languages and parts are bytes");
            return 0;
        }
    return 1;
}

static Py_ssize_t parts_size(PyObject *parts) {
    Py_ssize_t size = 0;
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(parts); n++) size += PyBytes_GET_SIZE(PyTuple_GET_ITEM(parts, n));
    return size;
}

static uint8_t *put_literal(uint8_t *at, const char *word) { return put_bytes(at, word, strlen(word)); }

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

/* Write the fixed part of the binary header of a success response; returns where its fields begin, behind their size.
 */
static uint8_t *put_binary_head(const Batcher *self, uint8_t *at, int64_t opaque) {
    put16(at, 0);
    at[2] = self->language;
    put16(at + 3, self->version);
    put32(at + 5, opaque);
    put32(at + 9, 1);
    put32(at + 13, 0);
    return at + BINARY_FIXED + 4;
}

/* Write the lengths of a frame without body into its first bytes; returns the size of the frame. */
static Py_ssize_t end_frame(uint8_t *start, const uint8_t *end, int is_binary) {
    put32(start, end - start - 4);
    put32(start + 4, (end - start - PREFIX_SIZE) | (is_binary ? 1u << 24 : 0));
    return end - start;
}

/* Build the properties that a deferred message gets behind its own; -1 for an error. */
static int put_suffix(Batcher *self, const Deferral *deferral, const Send *send, Slice unique_key) {
    self->suffix.size = 0;
    if (deferral->kind == DEFER_NONE) return 0;
    uint8_t *start = buffer_extend(&self->suffix, send->topic.size + unique_key.size + 120), *at = start;
    if (start == NULL) return -1;
    if (deferral->kind == DEFER_TIMER) {
        at = put_decimal(put_literal(at, "TIMER_OUT_MS\1"), deferral->out);
        *at++ = 2;
    } else if (deferral->kind == DEFER_HALF) {
        at = put_bytes(put_literal(at, "__transactionId__\1"), unique_key.at, unique_key.size);
        *at++ = 2;
    }
    at = put_bytes(put_literal(at, "REAL_TOPIC\1"), send->topic.at, send->topic.size);
    at = put_decimal(put_literal(at, "\2REAL_QID\1"), send->queue_id);
    *at++ = 2;
    self->suffix.size = at - start;
    return 0;
}

/* Recall handles: URL-safe base 64 of version, topic, broker name, time and unique key */

static uint8_t *put_base64(uint8_t *out, const uint8_t *at, Py_ssize_t size) {
    static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    for (; size > 0; at += 3, size -= 3) {
        uint32_t three = at[0] << 16 | (size > 1 ? at[1] << 8 : 0) | (size > 2 ? at[2] : 0);
        *out++ = alphabet[three >> 18];
        *out++ = alphabet[three >> 12 & 63];
        *out++ = size > 1 ? alphabet[three >> 6 & 63] : '=';
        *out++ = size > 2 ? alphabet[three & 63] : '=';
    }
    return out;
}

/* Upper bound of the bytes of a handle, including its text, which is built behind it. */
static Py_ssize_t handle_room(const Batcher *self, const Send *send, Slice unique_key) {
    Py_ssize_t text = send->topic.size + PyBytes_GET_SIZE(self->broker_name) + unique_key.size + 30;
    return text + (text + 2) / 3 * 4;
}

static uint8_t *put_handle(const Batcher *self, uint8_t *at, const Deferral *deferral, const Send *send, Slice unique_key) {
    uint8_t *text = at + handle_room(self, send, unique_key);
    text -= send->topic.size + PyBytes_GET_SIZE(self->broker_name) + unique_key.size + 30;
    uint8_t *end = put_bytes(put_literal(text, "v1 "), send->topic.at, send->topic.size);
    *end++ = ' ';
    end = put_bytes(end, PyBytes_AS_STRING(self->broker_name), PyBytes_GET_SIZE(self->broker_name));
    *end++ = ' ';
    /* A time within the slot, so that the recall message gets into the same one. */
    end = put_decimal(end, deferral->out + 1);
    *end++ = ' ';
    end = put_bytes(end, unique_key.at, unique_key.size);
    return put_base64(at, text, end - text);
}
