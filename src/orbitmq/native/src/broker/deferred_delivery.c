/* Delivery of due messages from the timer or a delay level to their real queues. Twin of ``plain_ones`` and
 * ``append_plain`` in broker/timer/delivery.py and of ``_deliver`` in broker/schedule/service.py. A message that rolls,
 * recalls another one or is not as the deferral wrote it ends the batch. */
#include "broker/deferred_delivery.h"
#include "base/results.h"
#include "broker/deferral.h"
#include "protocol/properties.h"
#include "protocol/remoting_header.h"
#include "store/append.h"
#include "store/record_check.h"
#include "store/route_table.h"

#define TIMER_UNIT_SIZE 52
#define ROLL 2
#define DELETE 4
#define INNER_BATCH 0x80

typedef struct { int64_t previous, magic, written, offset, size; } TimerUnit;

/* Read the unit at a position of the timer log, of which one file is mapped; 0 if there is none. */
static int read_unit(const Py_buffer *file, int64_t base, int64_t position, TimerUnit *unit) {
    /* Positions come from a file: compared before they are subtracted, a wild one cannot overflow. */
    if (base < 0 || position < base || position - base > file->len - TIMER_UNIT_SIZE) return 0;
    const uint8_t *at = (const uint8_t *)file->buf + (position - base);
    unit->previous = get64(at + 4);
    unit->magic = (int32_t)get32(at + 12);
    unit->written = get64(at + 16);
    unit->offset = get64(at + 28);
    unit->size = (int32_t)get32(at + 36);
    return get32(at) == TIMER_UNIT_SIZE && unit->magic > 0 && unit->magic <= 0xF && unit->previous < position;
}

/* follow_timer_chain(timer_log, base, position, skip_to, max_units): positions of units from the newest on, while they
 * are in this file and recall nothing; those up to skip_to are left out. Also returns where it ended and how many units
 * were passed. */
static PyObject *follow_timer_chain(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "follow_timer_chain(timer_log, base, position, skip_to, most)");
        return NULL;
    }
    int64_t base = PyLong_AsLongLong(args[1]), position = PyLong_AsLongLong(args[2]);
    int64_t skip_to = PyLong_AsLongLong(args[3]), most = PyLong_AsLongLong(args[4]), passed = 0;
    Py_buffer file;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &file, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *found = PyBytes_FromStringAndSize(NULL, most > 0 ? most * 8 : 0);
    if (found == NULL) { PyBuffer_Release(&file); return NULL; }
    uint8_t *start = (uint8_t *)PyBytes_AS_STRING(found), *at = start;
    TimerUnit unit;
    for (; passed < most && read_unit(&file, base, position, &unit); passed++) {
        if ((unit.magic & (DELETE | ROLL)) == DELETE) break;
        if (position > skip_to) {
            memcpy(at, &position, 8);
            at += 8;
        }
        position = unit.previous;
    }
    PyBuffer_Release(&file);
    if (_PyBytes_Resize(&found, at - start) < 0) return NULL;
    return Py_BuildValue("(NLL)", found, (long long)position, (long long)passed);
}

/* Parse the properties of a deferred message: the last two are its real topic and queue. */
static int read_deferred_properties(Slice properties, ParsedProperties *parsed, Slice *topic, int64_t *queue_id) {
    if (!read_stored_properties(properties, parsed)) return 0;
    Slice last = last_item(properties), before = last_item((Slice){properties.at, last.at - properties.at});
    if (before.size <= 11 || memcmp(before.at, "REAL_TOPIC\1", 11) != 0 || last.size <= 9 || last.size > 19 ||
        memcmp(last.at, "REAL_QID\1", 9) != 0)
        return 0;
    *topic = (Slice){before.at + 11, before.size - 11};
    return number_of((Slice){last.at + 9, last.size - 9}, 0, queue_id) && *queue_id <= INT32_MAX &&
           !contains(properties, "__CRC32#");
}

/* Parse a record of the system topic of this kind of deferral; 0 if it is anything else. */
static int read_deferred(enum DeferralKind kind, const uint8_t *at, int64_t size, int64_t offset, Record *record, Slice *topic,
                       int64_t *queue_id) {
    const char *name = DEFERRAL_TOPICS[kind];
    const Py_ssize_t field_size = 1 + strlen(name);
    if (size < MIN_RECORD_SIZE || (int64_t)get32(at) != size || get32(at + 4) != MAGIC_V1 || (int64_t)get64(at + 28) != offset)
        return 0;
    record->flag = get32(at + 16);
    record->sys_flag = get32(at + 36);
    record->born = get64(at + 40);
    record->born_host = (Slice){at + 48, record->sys_flag & BORN_HOST_V6 ? 20 : 8};
    Py_ssize_t head = 72 + record->born_host.size + (record->sys_flag & STORE_HOST_V6 ? 20 : 8);
    if (size < head) return 0;
    record->reconsumed = get32(at + head - 16);
    int64_t body_size = (int32_t)get32(at + head - 4), properties_at = head + body_size + field_size + 2;
    if (body_size < 0 || properties_at > size || at[head + body_size] != field_size - 1 ||
        memcmp(at + head + body_size + 1, name, field_size - 1) != 0 || properties_at + (int64_t)get16(at + properties_at - 2) != size)
        return 0;
    record->body = (Slice){at + head, body_size};
    record->properties[0] = (Slice){at + properties_at, size - properties_at};
    return !(record->sys_flag & (NOT_QUEUED | INNER_BATCH)) &&
           read_deferred_properties(record->properties[0], &record->parsed, topic, queue_id);
}

/* Append one due message to its real queue; ``suffix`` are the properties added by the delivery. */
static int deliver_one(Batcher *self, enum DeferralKind kind, const uint8_t *at, int64_t size, int64_t offset, Slice suffix, LogCursor *cursor) {
    Record record;
    Slice topic;
    int64_t queue_id;
    if (!read_deferred(kind, at, size, offset, &record, &topic, &queue_id) || record.body.size > self->max_body) return 0;
    Slice properties = record.properties[0];
    if (kind == DEFER_TIMER && (contains(properties, "TIMER_DEL_UNIQKEY") || contains(properties, "TIMER_ENQUEUE_MS") ||
                          contains(properties, "TIMER_DEQUEUE_MS")))
        return 0;
    QueueRoute *route = find_route(self, topic.at, topic.size, queue_id, 0);
    if (route == NULL) return miss_route(self, (const char *)topic.at, topic.size, queue_id, 0, 1);
    record.properties[1] = suffix;
    record.properties[2] = record.properties[3] = (Slice){NULL, 0};
    record.code = tags_code(&record.parsed);
    return append_record(self, route, &record, cursor);
}

/* Properties with the enqueue and dequeue time of the timer; no address for an error. */
static Slice stamp(Batcher *self, int64_t entered, int64_t now) {
    self->suffix.size = 0;
    uint8_t *start = buffer_extend(&self->suffix, 100), *end = start;
    if (start == NULL) return (Slice){NULL, 0};
    end = put_decimal(put_literal(end, "TIMER_ENQUEUE_MS\1"), entered);
    end = put_decimal(put_literal(end, "\2TIMER_DEQUEUE_MS\1"), now);
    *end++ = 2;
    return (Slice){start, end - start};
}

static PyObject *delivered_result(Batcher *self, int taken, long long delivered, long long size, const LogCursor *cursor) {
    PyObject *result = NULL, *entered = taken >= 0 ? enter_routes(self, 1) : NULL;
    if (entered != NULL)
        result = make_result(RESULT_DELIVERED, from_int(delivered), from_int(size), from_int(cursor->position), entered,
                             buffer_bytes(&self->hashes), buffer_bytes(&self->offsets), from_int(cursor->last_offset));
    untouch(self);
    return result;
}

/* deliver_units(units, source, source_base, first, end, log, position, limit, base, now, has_listeners)
 *
 * Units of the queue of a delay level whose messages are due; their records are between two offsets in one file of the
 * log. Returns a Delivered result. */
static PyObject *DeferredDelivery_deliver_units(Batcher *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 11 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "deliver_units(units, …) takes 11 arguments, the first of which is bytes");
        return NULL;
    }
    int64_t source_base = PyLong_AsLongLong(args[2]), first = PyLong_AsLongLong(args[3]), end = PyLong_AsLongLong(args[4]);
    Py_buffer source, log;
    LogCursor cursor = {0};
    if (PyErr_Occurred() || PyObject_GetBuffer(args[1], &source, PyBUF_SIMPLE) < 0) return NULL;
    if (begin_batch(self, args + 5, &log, &cursor) < 0) {
        PyBuffer_Release(&source);
        return NULL;
    }
    if (end > source_base + source.len) end = source_base + source.len;
    const uint8_t *units = (const uint8_t *)PyBytes_AS_STRING(args[0]);
    Py_ssize_t all = PyBytes_GET_SIZE(args[0]) / UNIT_SIZE, delivered = 0;
    long long sizes = 0;
    int taken = 1;
    for (; delivered < all; delivered++) {
        int64_t offset = get64(units + delivered * UNIT_SIZE), size = (int32_t)get32(units + delivered * UNIT_SIZE + 8);
        if (size <= 0 || offset < first || offset < source_base || offset > end - size) break;
        const uint8_t *at = (const uint8_t *)source.buf + (offset - source_base);
        taken = deliver_one(self, DEFER_DELAY_LEVEL, at, size, offset, (Slice){at, 0}, &cursor);
        if (taken != 1) break;
        sizes += size;
    }
    PyBuffer_Release(&log);
    PyBuffer_Release(&source);
    return delivered_result(self, taken, delivered, sizes, &cursor);
}

/* deliver(positions, timer_log, timer_base, source, source_base, first, end, most_bytes, log, position, limit, base,
 * now, has_listeners)
 *
 * Positions of units in one file of the timer log; their records are between two offsets in one file of the log.
 * Returns a Delivered result. */
static PyObject *DeferredDelivery_deliver(Batcher *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 14 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "deliver(positions, …) takes 14 arguments, the first of which is bytes");
        return NULL;
    }
    int64_t timer_base = PyLong_AsLongLong(args[2]), source_base = PyLong_AsLongLong(args[4]);
    int64_t first = PyLong_AsLongLong(args[5]), end = PyLong_AsLongLong(args[6]), most = PyLong_AsLongLong(args[7]);
    Py_buffer timer_log, source, log;
    LogCursor cursor = {0};
    if (PyErr_Occurred() || PyObject_GetBuffer(args[1], &timer_log, PyBUF_SIMPLE) < 0) return NULL;
    if (PyObject_GetBuffer(args[3], &source, PyBUF_SIMPLE) < 0) { PyBuffer_Release(&timer_log); return NULL; }
    if (begin_batch(self, args + 8, &log, &cursor) < 0) {
        PyBuffer_Release(&source);
        PyBuffer_Release(&timer_log);
        return NULL;
    }
    if (end > source_base + source.len) end = source_base + source.len;
    const char *positions = PyBytes_AS_STRING(args[0]);
    Py_ssize_t all = PyBytes_GET_SIZE(args[0]) / 8;
    long long delivered = 0, size = 0;
    int taken = 1;
    for (Py_ssize_t n = 0; n < all && size < most; n++) {
        int64_t position;
        TimerUnit unit;
        memcpy(&position, positions + 8 * n, 8);
        if (!read_unit(&timer_log, timer_base, position, &unit) || unit.magic & ROLL || unit.size <= 0 || unit.written < 0 ||
            unit.offset < first || unit.offset < source_base || unit.offset > end - unit.size)
            break;
        const uint8_t *at = (const uint8_t *)source.buf + (unit.offset - source_base);
        Slice suffix = stamp(self, unit.written, cursor.now);
        taken = suffix.at == NULL ? -1 : deliver_one(self, DEFER_TIMER, at, unit.size, unit.offset, suffix, &cursor);
        if (taken != 1) break;
        delivered++;
        size += unit.size;
    }
    PyBuffer_Release(&log);
    PyBuffer_Release(&source);
    PyBuffer_Release(&timer_log);
    return delivered_result(self, taken, delivered, size, &cursor);
}

static int DeferredDelivery_init(Batcher *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"store_host", "max_body", "max_properties", "is_indexing", "crc32", NULL};
    PyObject *store_host, *crc32;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$SnnpO", names, &store_host, &self->max_body, &self->max_properties,
                                     &self->is_indexing, &crc32))
        return -1;
    Py_XSETREF(self->store_host, Py_NewRef(store_host));
    Py_XSETREF(self->crc32, Py_NewRef(crc32));
    return 0;
}

static PyMethodDef DeferredDelivery_methods[] = {
    {"deliver", (PyCFunction)(void (*)(void))DeferredDelivery_deliver, METH_FASTCALL, "Deliver due timer messages."},
    {"deliver_units", (PyCFunction)(void (*)(void))DeferredDelivery_deliver_units, METH_FASTCALL, "Deliver due messages of a delay level."},
    {"add_route", (PyCFunction)Batcher_add_route, METH_VARARGS, "Open a route to a queue."},
    {"clear_routes", (PyCFunction)Batcher_clear_routes, METH_NOARGS, "Close all routes."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject DeferredDeliveryType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.native._native.DeferredDelivery",
    .tp_doc = "Delivers due messages to queues that have a route.",
    .tp_basicsize = sizeof(Batcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)DeferredDelivery_init,
    .tp_dealloc = (destructor)Batcher_dealloc,
    .tp_traverse = (traverseproc)Batcher_traverse,
    .tp_clear = (inquiry)Batcher_clear,
    .tp_methods = DeferredDelivery_methods,
    .tp_getset = Batcher_getset,
};
