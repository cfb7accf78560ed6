/* A record into the log, its queue and the index: what store/appending.py and store/dispatch.py make of a message. */
#ifndef ORBITMQ_STORING_H
#define ORBITMQ_STORING_H
#include "lanes.h"
#include "parking.h"
#include "properties.h"

#define SHORT_BODY 512 /* up to here a table is faster than calling the library for the CRC */

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

/* The properties of a message as they are stored, with a unique key and none of those that are known twice. */
static int read_stored_properties(Text properties, Known *known) {
    const uint8_t *item = properties.at, *end = item + properties.size;
    memset(known, 0, sizeof *known);
    if (properties.size == 0 || end[-1] != 2 || !is_ascii(properties.at, properties.size)) return 0;
    while (item < end) {
        const uint8_t *stop = memchr(item, 2, end - item), *middle = memchr(item, 1, stop - item);
        if (middle == NULL) return 0;
        Text name = {item, middle - item}, value = {middle + 1, stop - middle - 1}, *which = NULL;
        if (is_text(name, "UNIQ_KEY")) which = &known->unique_key;
        else if (is_text(name, "TAGS")) which = &known->tags;
        else if (is_text(name, "KEYS")) which = &known->keys;
        if (which != NULL) {
            if (which->at != NULL || value.size == 0) return 0;
            *which = value;
        }
        item = stop + 1;
    }
    return known->unique_key.at != NULL;
}

/* Without the byte that ends it. */
static Text last_item(Text properties) {
    const uint8_t *start = properties.at, *end = start + properties.size - 1, *at = end;
    if (properties.size <= 0) return (Text){start, 0};
    while (at > start && at[-1] != 2) at--;
    return (Text){at, end - at};
}

/* Where records go, and which was the last */

typedef struct {
    uint8_t *log;
    int64_t position, limit, base, now;
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

typedef struct {
    uint32_t flag, sys_flag;
    int64_t born, code;
    Text born_host, body;
    uint32_t reconsumed;
    Text properties[3]; /* one behind the other */
    Known known;
} Record;

/* Let the run end because a place has no lane, or one without the queue that it needs. */
static int want_lane(Runs *self, const char *topic, Py_ssize_t size, int64_t queue_id, int is_parking, int needs_queue) {
    PyObject *missing = Py_BuildValue("(s#LOO)", topic, size, (long long)queue_id, is_parking ? Py_True : Py_False,
                                      needs_queue ? Py_True : Py_False);
    if (missing == NULL) return -1;
    Py_XSETREF(self->missing, missing);
    return 0;
}

/* Store a record; 1 if it was, 0 if it has to go the general path, -1 for an error. */
static int store(Runs *self, Lane *lane, const Record *record, Place *place) {
    Py_ssize_t store_size = PyBytes_GET_SIZE(self->store_host), field_size = PyBytes_GET_SIZE(lane->field), properties_size = 0;
    for (int n = 0; n < 3; n++) properties_size += record->properties[n].size;
    int64_t size = 72 + record->born_host.size + store_size + record->body.size + field_size + 2 + properties_size;
    if (properties_size > self->max_properties || place->position + size > place->limit) return 0;
    uint32_t crc;
    if (body_crc(self, record->body.at, record->body.size, &crc) < 0) return -1;
    int64_t offset = place->base + place->position;
    if (!lane->is_touched) {
        int can = self->is_deferred || is_in_step(lane, offset) ? touch(self, lane) : 0;
        if (can <= 0) return can;
    }
    uint8_t *unit = NULL;
    if (!self->is_deferred) {
        unit = unit_room(lane);
        if (unit == NULL) return -1;
        if (self->is_indexing && put_keys(self, lane, &record->known, offset) < 0) return -1;
    }
    uint32_t flags = record->sys_flag & ~(uint32_t)(BORN_HOST_V6 | STORE_HOST_V6);
    if (record->born_host.size == 20) flags |= BORN_HOST_V6;
    if (store_size == 20) flags |= STORE_HOST_V6;
    uint8_t *at = place->log + place->position;
    put32(at, size);
    put32(at + 4, lane->magic);
    put32(at + 8, crc);
    put32(at + 12, lane->queue_id);
    put32(at + 16, record->flag);
    put64(at + 20, next_in(lane));
    put64(at + 28, offset);
    put32(at + 36, flags);
    put64(at + 40, record->born);
    at = put_text(at + 48, record->born_host.at, record->born_host.size);
    put64(at, place->now);
    at = put_text(at + 8, PyBytes_AS_STRING(self->store_host), store_size);
    put32(at, record->reconsumed);
    put64(at + 4, 0);
    put32(at + 12, record->body.size);
    at = put_text(at + 16, record->body.at, record->body.size);
    at = put_text(at, PyBytes_AS_STRING(lane->field), field_size);
    put16(at, properties_size);
    at += 2;
    for (int n = 0; n < 3; n++) at = put_text(at, record->properties[n].at, record->properties[n].size);
    if (unit != NULL) put_unit(unit, offset, size, record->code);
    count_record(lane, size);
    lane->requests++;
    place->position += size;
    place->last_offset = offset;
    return 1;
}

static int64_t tags_code(const Known *known) {
    return known->tags.at != NULL ? (int32_t)hash_on(0, known->tags.at, known->tags.size) : 0;
}

/* Begin a run in this part of the log; -1 for an error. */
static int begin_run(Runs *self, PyObject *const *where, Py_buffer *log, Place *place) {
    place->position = PyLong_AsLongLong(where[1]);
    place->limit = PyLong_AsLongLong(where[2]);
    place->base = PyLong_AsLongLong(where[3]);
    place->now = PyLong_AsLongLong(where[4]);
    self->is_heard = PyObject_IsTrue(where[5]);
    if (PyErr_Occurred() || PyObject_GetBuffer(where[0], log, PyBUF_WRITABLE) < 0) return -1;
    place->log = log->buf;
    if (place->limit > log->len) place->limit = log->len;
    self->answers.size = self->hashes.size = self->offsets.size = 0;
    untouch(self);
    Py_CLEAR(self->missing);
    return 0;
}

/* What a run comes to for its queues */

static int add_to(PyObject **list, PyObject *item) {
    if (item == NULL) return -1;
    if (*list == NULL) *list = PyList_New(0);
    int is_added = *list == NULL ? -1 : PyList_Append(*list, item);
    Py_DECREF(item);
    return is_added;
}

/* What a lane's queue got in a run */
typedef struct { const uint8_t *units; uint32_t size; long long first, stop; int64_t code; } Run;

static Run run_of(const Lane *lane) {
    const End *queue = lane->queue;
    Run run = {pending_of(lane->queue), queue->pending, queue->end, stop_of(lane), 0};
    run.code = get64(run.units + run.size - UNIT_SIZE + 12);
    return run;
}

typedef struct { PyObject *runs, *dirtied, *full, *arrived; long long nums, size; } Entered;

/* Whom this lane's queue concerns; -1 for an error. */
static int announce_lane(const Runs *self, const Lane *lane, int are_told, Entered *entered) {
    const End *queue = lane->queue;
    if ((are_told && lane->count == NULL) || self->is_heard) {
        Run run = run_of(lane);
        if (are_told && lane->count == NULL &&
            add_to(&entered->runs, Py_BuildValue("(OLLy#LL)", lane->topic, (long long)lane->queue_id, run.first,
                                                 (char *)run.units, (Py_ssize_t)run.size, (long long)lane->bytes,
                                                 (long long)lane->requests)) < 0)
            return -1;
        if (self->is_heard && add_to(&entered->arrived, Py_BuildValue("(OL)", queue->owner, (long long)run.code)) < 0) return -1;
    }
    if (!queue->is_queued && add_to(&entered->dirtied, Py_NewRef(queue->owner)) < 0) return -1;
    if (size_in_memory(queue) >= queue->full_at && add_to(&entered->full, Py_NewRef(queue->owner)) < 0) return -1;
    return 0;
}

static void enter_lane(const Runs *self, const Lane *lane, Entered *entered) {
    End *queue = lane->queue;
    long long nums = queue->pending / UNIT_SIZE;
    if (self->is_deferred) {
        queue->next_offset += nums;
    } else {
        queue->max_physical = stop_of(lane);
        if (queue->is_pending_fresh) queue->fresh_size += (uint8_t)queue->pending;
        else queue->tail_size += queue->pending;
        queue->end += nums;
        if (queue->next_offset < queue->end) queue->next_offset = queue->end;
        queue->is_queued = 1;
    }
    forget_pending(queue);
    if (lane->count == NULL) return;
    Tally *count = lane->count;
    count->times += lane->requests;
    count->nums += nums;
    count->size += lane->bytes;
    entered->nums += nums;
    entered->size += lane->bytes;
}

/* Whether a lane that was touched got something. */
static int has_run(const Lane *lane) { return lane->queue->pending > 0; }

/* Enter the units of a run into their queues; what is told of that: what queues got that are not counted here, queues
 * that were clean, queues whose tail is to be written, those that got something if that is wanted, and the number and
 * bytes of what was counted. NULL for an error, and then nothing was entered. */
static PyObject *enter_lanes(Runs *self, int are_told) {
    Entered entered = {0};
    Py_ssize_t ready = 0;
    PyObject *result = NULL, *none = PyTuple_New(0);
    if (none == NULL) return NULL;
    for (; ready < self->touched_count; ready++) {
        const Lane *lane = &self->lanes[self->touched[ready]];
        if (!self->is_deferred && has_run(lane) && announce_lane(self, lane, are_told, &entered) < 0) break;
    }
    if (ready == self->touched_count) {
        for (Py_ssize_t n = 0; n < ready; n++) {
            const Lane *lane = &self->lanes[self->touched[n]];
            if (has_run(lane)) enter_lane(self, lane, &entered);
        }
        result = Py_BuildValue("(OOOOLL)", entered.runs ? entered.runs : none, entered.dirtied ? entered.dirtied : none,
                               entered.full ? entered.full : none, entered.arrived ? entered.arrived : none, entered.nums,
                               entered.size);
    }
    Py_XDECREF(entered.runs);
    Py_XDECREF(entered.dirtied);
    Py_XDECREF(entered.full);
    Py_XDECREF(entered.arrived);
    Py_DECREF(none);
    return result;
}

#endif
