/* Messages that wait elsewhere before they go where they belong: until a time, for a delay, or as halves of
 * transactions. The compiled twin of ``park`` and ``prepare`` in broker/timer.py, schedule.py and transaction.py; what
 * they would refuse or rewrite is left to them.
 */
#ifndef ORBITMQ_PARKING_H
#define ORBITMQ_PARKING_H
#include "lanes.h"
#include "properties.h"
#include "send_header.h"

enum Kind { PLAIN, TIMED, DELAYED, HALF };

typedef struct {
    enum Kind kind;
    int64_t out;   /* the slot of one that waits for a time */
    int64_t level; /* of one that is delayed */
    int64_t delay;
} Wish;

static const char *const PARKING_TOPICS[] = {NULL, "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"};

static int contains(Text text, const char *piece) {
    return memmem(text.at, text.size, piece, strlen(piece)) != NULL;
}

static int is_true(Text text) {
    return text.size == 4 && (text.at[0] | 0x20) == 't' && (text.at[1] | 0x20) == 'r' && (text.at[2] | 0x20) == 'u' &&
           (text.at[3] | 0x20) == 'e';
}

/* A number as it is written by everyone: digits, the first of which is no 0. */
static int is_count(Text text, int64_t *value) { return text.size && *text.at != '0' && number_of(text, 0, value); }

static int read_time(const Runs *self, Text text, int64_t unit, int64_t now, Wish *wish) {
    int64_t number;
    if (!is_count(text, &number)) return 0;
    if (unit) {
        if (number > self->longest) return 0;
        number = now + number * unit;
    }
    if (number <= now || number - now > self->longest) return 0;
    wish->kind = TIMED;
    wish->out = (number - 1) / self->precision * self->precision;
    return 1;
}

/* What a message wishes whose properties have something of a delay, a time or a transaction in them, and are at least
 * a unique key. 0 if that is not for here to say.
 */
static int read_wish(const Runs *self, Text properties, int64_t now, Wish *wish) {
    Text delay = {NULL, 0}, time = {NULL, 0}, half = {NULL, 0};
    int64_t unit = 0;
    const uint8_t *item = properties.at, *end = item + properties.size;
    memset(wish, 0, sizeof *wish);
    while (item < end) {
        const uint8_t *stop = memchr(item, 2, end - item), *middle = memchr(item, 1, stop - item);
        /* What has no name or no value is dropped, which changes the string. */
        if (middle == NULL || middle == item || middle + 1 == stop) return 0;
        Text name = {item, middle - item}, value = {middle + 1, stop - middle - 1}, *which = NULL;
        if (is_text(name, "DELAY")) which = &delay;
        else if (is_text(name, "TIMER_DELIVER_MS")) which = &time;
        else if (is_text(name, "TIMER_DELAY_SEC")) which = &time, unit = 1000;
        else if (is_text(name, "TIMER_DELAY_MS")) which = &time, unit = 1;
        else if (is_text(name, "TRAN_MSG")) which = &half;
        else if (is_text(name, "TRACE_ON")) return 0;
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
        wish->kind = HALF;
        return !contains(properties, "__transactionId__");
    }
    if (delay.at != NULL) {
        wish->kind = DELAYED;
        if (!is_count(delay, &wish->level) || wish->level > PyTuple_GET_SIZE(self->delays)) return 0;
        wish->delay = PyLong_AsLongLong(PyTuple_GET_ITEM(self->delays, wish->level - 1));
        return !contains(properties, "TIMER_DEL");
    }
    return read_time(self, time, unit, now, wish) && !contains(properties, "TIMER_OUT_MS") &&
           !contains(properties, "TIMER_DEL_UNIQKEY");
}

static int64_t parking_queue(const Wish *wish) { return wish->kind == DELAYED ? wish->level - 1 : 0; }

static uint8_t *put_text(uint8_t *at, const void *text, Py_ssize_t size) {
    if (size) memcpy(at, text, size); /* of nothing there may be no address */
    return at + size;
}

static uint8_t *put_part(uint8_t *at, PyObject *parts, Py_ssize_t number) {
    PyObject *part = PyTuple_GET_ITEM(parts, number);
    return put_text(at, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part));
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

static uint8_t *put_word(uint8_t *at, const char *word) { return put_text(at, word, strlen(word)); }

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

/* The fixed part of the binary header of an answer that all is well; returns where its fields go, behind their size. */
static uint8_t *put_binary_head(const Runs *self, uint8_t *at, int64_t opaque) {
    put16(at, 0);
    at[2] = self->language;
    put16(at + 3, self->version);
    put32(at + 5, opaque);
    put32(at + 9, 1);
    put32(at + 13, 0);
    return at + BINARY_FIXED + 4;
}

/* Say in front of a frame without a body how long it is; returns that. */
static Py_ssize_t end_frame(uint8_t *start, const uint8_t *end, int is_binary) {
    put32(start, end - start - 4);
    put32(start + 4, (end - start - PREFIX_SIZE) | (is_binary ? 1u << 24 : 0));
    return end - start;
}

/* The properties that a message gets behind all others while it waits; -1 for an error. */
static int put_behind(Runs *self, const Wish *wish, const Send *send, Text unique_key) {
    self->behind.size = 0;
    if (wish->kind == PLAIN) return 0;
    uint8_t *start = pile_more(&self->behind, send->topic.size + unique_key.size + 120), *at = start;
    if (start == NULL) return -1;
    if (wish->kind == TIMED) {
        at = put_decimal(put_word(at, "TIMER_OUT_MS\1"), wish->out);
        *at++ = 2;
    } else if (wish->kind == HALF) {
        at = put_text(put_word(at, "__transactionId__\1"), unique_key.at, unique_key.size);
        *at++ = 2;
    }
    at = put_text(put_word(at, "REAL_TOPIC\1"), send->topic.at, send->topic.size);
    at = put_decimal(put_word(at, "\2REAL_QID\1"), send->queue_id);
    *at++ = 2;
    self->behind.size = at - start;
    return 0;
}

/* Recall handles: URL-safe base 64 of what says which message is meant */

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

/* The bytes of a handle at most, and where its text is put together behind them. */
static Py_ssize_t handle_room(const Runs *self, const Send *send, Text unique_key) {
    Py_ssize_t text = send->topic.size + PyBytes_GET_SIZE(self->broker_name) + unique_key.size + 30;
    return text + (text + 2) / 3 * 4;
}

static uint8_t *put_handle(const Runs *self, uint8_t *at, const Wish *wish, const Send *send, Text unique_key) {
    uint8_t *text = at + handle_room(self, send, unique_key);
    text -= send->topic.size + PyBytes_GET_SIZE(self->broker_name) + unique_key.size + 30;
    uint8_t *end = put_text(put_word(text, "v1 "), send->topic.at, send->topic.size);
    *end++ = ' ';
    end = put_text(end, PyBytes_AS_STRING(self->broker_name), PyBytes_GET_SIZE(self->broker_name));
    *end++ = ' ';
    /* A time within the slot, so that what takes the message back gets into the same one. */
    end = put_decimal(end, wish->out + 1);
    *end++ = ' ';
    end = put_text(end, unique_key.at, unique_key.size);
    return put_base64(at, text, end - text);
}

#endif
