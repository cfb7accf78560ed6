/* BATCH_ACK_MESSAGE: acknowledgements of several messages or pops in one request. Twin of `_ack_batch` of
 * broker/pop/ack.py. All entries are parsed and checked before the first is appended. */
#include "broker/pop_ack_batch.h"
#include "broker/pop_ack.h"
#include "protocol/remoting_header.h"
#include "store/append.h"
#include "store/queue_state.h"
#include "store/route_table.h"

#define MAX_BATCH_BODY (32 * 1024) /* as SMALL_BODY of broker/time_slices.py: the Python path slices longer ones */

/* Base64 */

static int sextet(uint8_t letter) {
    if (letter >= 'A' && letter <= 'Z') return letter - 'A';
    if (letter >= 'a' && letter <= 'z') return letter - 'a' + 26;
    if (letter >= '0' && letter <= '9') return letter - '0' + 52;
    return letter == '+' ? 62 : letter == '/' ? 63 : -1;
}

/* Decode the bit set of an entry; 0 if it is empty, long or damaged. */
static int read_bits(Slice text, Ack *ack) {
    Py_ssize_t size = text.size;
    if (size == 0 || size % 4 || size / 4 * 3 > BIT_SET_BYTES + 2) return 0;
    int padding = text.at[size - 1] != '=' ? 0 : text.at[size - 2] != '=' ? 1 : 2;
    uint8_t bytes[BIT_SET_BYTES + 2];
    Py_ssize_t count = 0;
    for (Py_ssize_t n = 0; n < size; n += 4) {
        uint32_t word = 0;
        for (int letter = 0; letter < 4; letter++) {
            int value = n + letter >= size - padding ? 0 : sextet(text.at[n + letter]);
            if (value < 0) return 0;
            word = word << 6 | (uint32_t)value;
        }
        bytes[count++] = word >> 16;
        bytes[count++] = word >> 8;
        bytes[count++] = word;
    }
    count -= padding;
    while (count > 0 && bytes[count - 1] == 0) count--;
    if (count == 0 || count > BIT_SET_BYTES) return 0;
    memcpy(ack->bits, bytes, count);
    ack->bits_size = count;
    ack->count = 0;
    for (Py_ssize_t n = 0; n < count; n++) ack->count += __builtin_popcount(bytes[n]);
    return ack->count <= MAX_BATCH_ACKED;
}

/* Entries, as fastjson writes them */

enum {
    BATCH_BITS = 1, BATCH_GROUP = 2, BATCH_INVISIBLE = 4, BATCH_POP_TIME = 8, BATCH_QUEUE = 16, BATCH_RETRY = 32,
    BATCH_REVIVE_QUEUE = 64, BATCH_START = 128, BATCH_TOPIC = 256, BATCH_ALL = 511
};

static int is_text(const FieldText *value) {
    return value->text.at != NULL && value->text.at[-1] == '"' && !value->escapes && !value->non_ascii;
}

static int is_number(const FieldText *value, int64_t *number) {
    return value->text.at != NULL && value->text.at[-1] != '"' && number_of(value->text, 0, number);
}

/* Enter a property of an entry; its bit, or 0 if it is unusual. */
static int enter_property(Slice name, const FieldText *value, Ack *ack) {
    if (name.size == 1) {
        switch (*name.at) {
            case 'b': return is_text(value) && read_bits(value->text, ack) ? BATCH_BITS : 0;
            case 'c': ack->group = value->text; return is_text(value) ? BATCH_GROUP : 0;
            case 'q': return is_number(value, &ack->queue_id) && ack->queue_id <= INT32_MAX ? BATCH_QUEUE : 0;
            /* Messages of retry topics are for the Python path. */
            case 'r': return is_text(value) && slice_equals(value->text, "0") ? BATCH_RETRY : 0;
            case 't': ack->topic = value->text; return is_text(value) ? BATCH_TOPIC : 0;
            default: return 0;
        }
    }
    if (slice_equals(name, "it")) return is_number(value, &ack->invisible) ? BATCH_INVISIBLE : 0;
    if (slice_equals(name, "pt")) return is_number(value, &ack->pop_time) ? BATCH_POP_TIME : 0;
    if (slice_equals(name, "rq")) return is_number(value, &ack->revive_queue) ? BATCH_REVIVE_QUEUE : 0;
    return slice_equals(name, "so") && is_number(value, &ack->start) ? BATCH_START : 0;
}

static const uint8_t *read_entry(const uint8_t *at, const uint8_t *end, Ack *ack) {
    Slice name;
    FieldText value;
    int seen = 0, more;
    memset(ack, 0, sizeof *ack);
    ack->offset = -1;
    at = skip_blanks(at, end);
    if (at >= end || *at++ != '{') return NULL;
    do {
        at = read_name(at, end, &name);
        if (at == NULL) return NULL;
        at = read_value(at, end, &value);
        if (at == NULL) return NULL;
        int property = enter_property(name, &value, ack);
        if (property == 0 || seen & property) return NULL;
        seen |= property;
        more = follows(&at, end);
    } while (more == 1);
    return more == 0 && seen == BATCH_ALL ? at : NULL;
}

/* Parse the entries into the items buffer; what follows the array, or NULL if one is unusual or for an error. */
static const uint8_t *read_entries(Batcher *self, const uint8_t *at, const uint8_t *end) {
    self->items.size = 0;
    if (at >= end || *at++ != '[') return NULL;
    for (;;) {
        Ack ack;
        at = read_entry(at, end, &ack);
        if (at == NULL) return NULL;
        uint8_t *item = buffer_extend(&self->items, sizeof ack);
        if (item == NULL) return NULL;
        memcpy(item, &ack, sizeof ack);
        at = skip_blanks(at, end);
        if (at >= end) return NULL;
        if (*at == ']') return at + 1;
        if (*at++ != ',') return NULL;
    }
}

static int read_batch(Batcher *self, Slice body, Slice *broker_name) {
    const uint8_t *at = skip_blanks(body.at, body.at + body.size), *end = body.at + body.size;
    Slice name;
    FieldText value;
    int has_acks = 0, has_name = 0, more;
    if (at >= end || *at++ != '{') return 0;
    do {
        at = read_name(at, end, &name);
        if (at == NULL) return 0;
        if (slice_equals(name, "acks") && !has_acks) {
            at = read_entries(self, at, end);
            has_acks = 1;
        } else if (slice_equals(name, "brokerName") && !has_name) {
            at = read_value(at, end, &value);
            if (at != NULL && (!is_text(&value) || value.text.size == 0)) return 0;
            has_name = 1;
        } else {
            return 0;
        }
        if (at == NULL) return 0;
        more = follows(&at, end);
    } while (more == 1);
    if (more != 0 || !has_acks || !has_name || skip_blanks(at, end) != end) return 0;
    *broker_name = value.text;
    return 1;
}

static int has_offsets(const QueueRoute *home, const Ack *ack) {
    const QueueStateObject *queue = (QueueStateObject *)home->queue->owner;
    int first = 0, last = 8 * ack->bits_size - 1;
    while (!has_bit(ack, first)) first++;
    while (!has_bit(ack, last)) last--;
    return queue->min_offset <= bit_offset(ack, first) && bit_offset(ack, last) <= home->queue->end;
}

/* Append the acknowledgements of a request; 1 if done, 0 if it is for the Python path, -1 for an error. */
static int acknowledge_batch(Batcher *self, Slice body, LogCursor *cursor) {
    Slice broker_name;
    if (body.size > MAX_BATCH_BODY || !read_batch(self, body, &broker_name)) return PyErr_Occurred() ? -1 : 0;
    Ack *acks = (Ack *)self->items.data;
    Py_ssize_t count = self->items.size / sizeof *acks;
    QueueRoute *home, *timer = NULL;
    int64_t room = 0;
    for (Py_ssize_t n = 0; n < count; n++) {
        acks[n].broker_name = broker_name;
        int found = find_ack_routes(self, &acks[n], cursor, &home, &timer);
        if (found <= 0) return found;
        int64_t size = ack_room(self, &acks[n]);
        if (!has_offsets(home, &acks[n]) || size > self->max_body || size > self->max_properties) return 0;
        room += size + 200 + PyBytes_GET_SIZE(timer->field) + 2 * PyBytes_GET_SIZE(self->store_host);
    }
    /* Once the first is appended there must be room for all. */
    int can = has_room_for(self, timer, room, 0, cursor);
    for (Py_ssize_t n = 0; can > 0 && n < count; n++) {
        find_ack_routes(self, &acks[n], cursor, &home, &timer);
        can = append_ack(self, home, timer, &acks[n], cursor);
    }
    return can;
}
