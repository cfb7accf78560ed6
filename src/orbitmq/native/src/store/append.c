/* Append: writes a record to the log, its unit to the queue and its keys to the index. Twin of store/append/appender.py
 * and store/dispatch/dispatcher.py. */
#include "store/append.h"
#include "base/results.h"
#include "base/crc32.h"
#include "broker/deferral.h"
#include "protocol/properties.h"
#include "protocol/remoting_header.h"
#include "store/queue_state.h"
#include "store/route_table.h"

#define SHORT_BODY 512 /* up to here a table is faster than calling the library for the CRC */

/* Index keys */

static int put_hash(Batcher *self, uint32_t hash, int64_t offset) {
    uint8_t *hash_at = buffer_extend(&self->hashes, 4), *offset_at = buffer_extend(&self->offsets, 8);
    if (hash_at == NULL || offset_at == NULL) return -1;
    uint32_t value = index_hash(hash);
    memcpy(hash_at, &value, 4);
    memcpy(offset_at, &offset, 8);
    return 0;
}

static int put_key(Batcher *self, uint32_t hash, Slice key, int64_t offset) {
    return put_hash(self, hash_on(hash, key.at, key.size), offset);
}

/* The hash of one of the texts of a message, on top of another hash. */
static uint32_t hash_text_on(uint32_t hash, const ParsedProperties *parsed, Slice text) {
    return parsed->has_non_ascii ? hash_utf8_on(hash, text.at, text.size) : hash_on(hash, text.at, text.size);
}

static int put_keys(Batcher *self, const QueueRoute *route, const ParsedProperties *parsed, int64_t offset) {
    uint32_t hash = route->prefix_hash;
    if (parsed->unique_key.at != NULL && put_hash(self, hash_text_on(hash, parsed, parsed->unique_key), offset) < 0) return -1;
    if (parsed->keys.at != NULL) {
        const uint8_t *at = parsed->keys.at, *end = at + parsed->keys.size;
        while (at <= end) {
            const uint8_t *blank = memchr(at, ' ', end - at);
            if (blank == NULL) blank = end;
            if (blank > at && put_hash(self, hash_text_on(hash, parsed, (Slice){at, blank - at}), offset) < 0) return -1;
            at = blank + 1;
        }
    }
    if (parsed->tags.at == NULL) return 0;
    return put_hash(self, hash_text_on(hash_on(hash, (const uint8_t *)"T#", 2), parsed, parsed->tags), offset);
}

/* Parse properties as they are stored: with none of the known ones twice. */
static int read_stored_properties(Slice properties, ParsedProperties *parsed) {
    const uint8_t *item = properties.at, *end = item + properties.size;
    memset(parsed, 0, sizeof *parsed);
    if (properties.size == 0) return 1;
    if (end[-1] != 2) return 0;
    parsed->has_non_ascii = !is_ascii(properties.at, properties.size);
    if (parsed->has_non_ascii && !is_utf8(properties.at, properties.size)) return 0;
    while (item < end) {
        const uint8_t *stop = memchr(item, 2, end - item), *middle = memchr(item, 1, stop - item);
        if (middle == NULL) return 0;
        Slice name = {item, middle - item}, value = {middle + 1, stop - middle - 1}, *which = NULL;
        if (slice_equals(name, "UNIQ_KEY")) which = &parsed->unique_key;
        else if (slice_equals(name, "TAGS")) which = &parsed->tags;
        else if (slice_equals(name, "KEYS")) which = &parsed->keys;
        if (which != NULL) {
            if (which->at != NULL || value.size == 0) return 0;
            *which = value;
        }
        item = stop + 1;
    }
    return 1;
}

/* The last property, without its terminator. */
static Slice last_item(Slice properties) {
    const uint8_t *start = properties.at, *end = start + properties.size - 1, *at = end;
    if (properties.size <= 0) return (Slice){start, 0};
    while (at > start && at[-1] != 2) at--;
    return (Slice){at, end - at};
}

/* Write position in the log */

static int body_crc(Batcher *self, const uint8_t *body, Py_ssize_t size, uint32_t *crc) {
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

/* Record that the batch ends because a queue has no route, or one without the queue that it needs. */
static int miss_route(Batcher *self, const char *topic, Py_ssize_t size, int64_t queue_id, int is_deferral, int needs_queue) {
    PyObject *missing = Py_BuildValue("(s#LOO)", topic, size, (long long)queue_id, is_deferral ? Py_True : Py_False,
                                      needs_queue ? Py_True : Py_False);
    if (missing == NULL) return -1;
    Py_XSETREF(self->missing, missing);
    return 0;
}

/* 1 if the queue can get the record at this offset, 0 if not, -1 for an error. */
static int touch_for(Batcher *self, QueueRoute *route, int64_t offset) {
    if (route->is_touched) return 1;
    return self->dispatches_later || is_caught_up(route, offset) ? touch(self, route) : 0;
}

/* 1 if a record of this route can be appended whose variable parts, properties included, have at most `size` bytes; 0 if
 * it is for the Python path, -1 for an error. */
static int has_room_for(Batcher *self, QueueRoute *route, int64_t size, Py_ssize_t properties_size, const LogCursor *cursor) {
    size += 72 + PyBytes_GET_SIZE(self->store_host) + PyBytes_GET_SIZE(route->field) + 2;
    if (properties_size > self->max_properties || cursor->position + size > cursor->limit) return 0;
    return touch_for(self, route, cursor->base + cursor->position);
}

/* Append a record; 1 if done, 0 if it is for the Python path, -1 for an error. */
static int append_record(Batcher *self, QueueRoute *route, const Record *record, LogCursor *cursor) {
    Py_ssize_t store_size = PyBytes_GET_SIZE(self->store_host), field_size = PyBytes_GET_SIZE(route->field), properties_size = 0;
    for (int n = 0; n < PROPERTY_PARTS; n++) properties_size += record->properties[n].size;
    int64_t size = 72 + record->born_host.size + store_size + record->body.size + field_size + 2 + properties_size;
    if (properties_size > self->max_properties || cursor->position + size > cursor->limit) return 0;
    uint32_t crc;
    if (body_crc(self, record->body.at, record->body.size, &crc) < 0) return -1;
    int64_t offset = cursor->base + cursor->position;
    int can = touch_for(self, route, offset);
    if (can <= 0) return can;
    uint8_t *unit = NULL;
    if (!self->dispatches_later) {
        unit = unit_room(route);
        if (unit == NULL) return -1;
        if (self->is_indexing && put_keys(self, route, &record->parsed, offset) < 0) return -1;
    }
    uint32_t flags = record->sys_flag & ~(uint32_t)(BORN_HOST_V6 | STORE_HOST_V6);
    if (record->born_host.size == 20) flags |= BORN_HOST_V6;
    if (store_size == 20) flags |= STORE_HOST_V6;
    uint8_t *at = cursor->log + cursor->position;
    put32(at, size);
    put32(at + 4, route->magic);
    put32(at + 8, crc);
    put32(at + 12, route->queue_id);
    put32(at + 16, record->flag);
    put64(at + 20, next_in(route));
    put64(at + 28, offset);
    put32(at + 36, flags);
    put64(at + 40, record->born);
    at = put_bytes(at + 48, record->born_host.at, record->born_host.size);
    put64(at, cursor->now);
    at = put_bytes(at + 8, PyBytes_AS_STRING(self->store_host), store_size);
    put32(at, record->reconsumed);
    put64(at + 4, 0);
    put32(at + 12, record->body.size);
    at = put_bytes(at + 16, record->body.at, record->body.size);
    at = put_bytes(at, PyBytes_AS_STRING(route->field), field_size);
    put16(at, properties_size);
    at += 2;
    for (int n = 0; n < PROPERTY_PARTS; n++) at = put_bytes(at, record->properties[n].at, record->properties[n].size);
    if (unit != NULL) put_unit(unit, offset, size, record->code);
    count_record(route, size);
    if (size > size_bounds[0] && route->count != NULL) count_large(route->count, size);
    route->requests++;
    cursor->position += size;
    cursor->last_offset = offset;
    return 1;
}

static int64_t tags_code(const ParsedProperties *parsed) {
    return parsed->tags.at != NULL ? (int32_t)hash_text_on(0, parsed, parsed->tags) : 0;
}

/* Begin a batch in this part of the log; -1 for an error. */
static int begin_batch(Batcher *self, PyObject *const *where, Py_buffer *log, LogCursor *cursor) {
    cursor->position = PyLong_AsLongLong(where[1]);
    cursor->limit = PyLong_AsLongLong(where[2]);
    cursor->base = PyLong_AsLongLong(where[3]);
    cursor->now = PyLong_AsLongLong(where[4]);
    self->has_listeners = PyObject_IsTrue(where[5]);
    if (PyErr_Occurred() || PyObject_GetBuffer(where[0], log, PyBUF_WRITABLE) < 0) return -1;
    cursor->log = log->buf;
    if (cursor->limit > log->len) cursor->limit = log->len;
    self->answers.size = self->hashes.size = self->offsets.size = 0;
    untouch(self);
    Py_CLEAR(self->missing);
    return 0;
}

/* Effects of a batch on its queues */

static int add_to(PyObject **list, PyObject *item) {
    if (item == NULL) return -1;
    if (*list == NULL) *list = PyList_New(0);
    int is_added = *list == NULL ? -1 : PyList_Append(*list, item);
    Py_DECREF(item);
    return is_added;
}

/* What a route's queue got in this batch. */
typedef struct { const uint8_t *units; uint32_t size; long long first, stop; int64_t code; } QueueBatch;

static QueueBatch queue_batch_of(const QueueRoute *route) {
    const QueueState *queue = route->queue;
    QueueBatch batch = {pending_of(route->queue), queue->pending, queue->end, stop_of(route), 0};
    batch.code = get64(batch.units + batch.size - UNIT_SIZE + 12);
    return batch;
}

typedef struct { PyObject *shares, *dirtied, *full, *arrived; long long nums, size; } Entered;

/* Add a route's queue to the reports it belongs to; -1 for an error. */
static int report_route(const Batcher *self, const QueueRoute *route, int reports_shares, Entered *entered) {
    const QueueState *queue = route->queue;
    if ((reports_shares && route->count == NULL) || self->has_listeners) {
        QueueBatch batch = queue_batch_of(route);
        if (reports_shares && route->count == NULL &&
            add_to(&entered->shares, make_result(RESULT_QUEUE_SHARE, Py_NewRef(route->topic), from_int(route->queue_id), from_int(batch.first),
                                                     PyBytes_FromStringAndSize((const char *)batch.units, batch.size),
                                                     from_int(route->bytes), from_int(route->requests))) < 0)
            return -1;
        if (self->has_listeners && add_to(&entered->arrived, Py_BuildValue("(OL)", queue->owner, (long long)batch.code)) < 0) return -1;
    }
    if (!queue->is_queued && add_to(&entered->dirtied, Py_NewRef(queue->owner)) < 0) return -1;
    if (size_in_memory(queue) >= queue->full_at && add_to(&entered->full, Py_NewRef(queue->owner)) < 0) return -1;
    return 0;
}

static void enter_route(const Batcher *self, const QueueRoute *route, Entered *entered) {
    QueueState *queue = route->queue;
    long long nums = queue->pending / UNIT_SIZE;
    if (self->dispatches_later) {
        queue->next_offset += nums;
    } else {
        queue->max_physical = stop_of(route);
        if (queue->is_pending_fresh) queue->fresh_size += (uint8_t)queue->pending;
        else queue->tail_size += queue->pending;
        queue->end += nums;
        if (queue->next_offset < queue->end) queue->next_offset = queue->end;
        queue->is_queued = 1;
    }
    drop_pending(queue);
    if (route->count == NULL) return;
    Counter *count = route->count;
    count->times += route->requests;
    count->nums += nums;
    count->size += route->bytes;
    entered->nums += nums;
    entered->size += route->bytes;
}

/* True if a touched route got records. */
static int has_batch(const QueueRoute *route) { return route->queue->pending > 0; }

/* Enter the units of a batch into their queues. Returns the Entered result; NULL for an error, and then nothing was
 * entered. */
static PyObject *enter_routes(Batcher *self, int reports_shares) {
    Entered entered = {0};
    Py_ssize_t ready = 0;
    PyObject *result = NULL, *none = PyTuple_New(0);
    if (none == NULL) return NULL;
    for (; ready < self->touched_count; ready++) {
        const QueueRoute *route = &self->routes[self->touched[ready]];
        if (!self->dispatches_later && has_batch(route) && report_route(self, route, reports_shares, &entered) < 0) break;
    }
    if (ready == self->touched_count) {
        for (Py_ssize_t n = 0; n < ready; n++) {
            const QueueRoute *route = &self->routes[self->touched[n]];
            if (has_batch(route)) enter_route(self, route, &entered);
        }
        result = make_result(RESULT_ENTERED, Py_NewRef(entered.shares ? entered.shares : none),
                             Py_NewRef(entered.dirtied ? entered.dirtied : none), Py_NewRef(entered.full ? entered.full : none),
                             Py_NewRef(entered.arrived ? entered.arrived : none), from_int(entered.nums), from_int(entered.size));
    }
    Py_XDECREF(entered.shares);
    Py_XDECREF(entered.dirtied);
    Py_XDECREF(entered.full);
    Py_XDECREF(entered.arrived);
    Py_DECREF(none);
    return result;
}
