/* Messages whose time has come, from where they waited to where they belong: the compiled twin of ``plain_ones`` and
 * ``append_plain`` in broker/timer_messages.py, and of ``_deliver`` in broker/schedule.py. What rolls, takes another one
 * back or is not as parking leaves it ends a run.
 */
#ifndef ORBITMQ_DELIVERING_H
#define ORBITMQ_DELIVERING_H
#include "storing.h"

#define TIMER_UNIT_SIZE 52
#define ROLL 2
#define DELETE 4
#define MAGIC_V1 0xDAA320A7u
#define NOT_QUEUED 0x4
#define INNER_BATCH 0x80
#define LEAST_RECORD 91

typedef struct { int64_t previous, magic, written, offset, size; } TimerUnit;

/* The unit at a position of the timer log, of which one file is at hand; 0 if there is none. */
static int read_unit(const Py_buffer *file, int64_t base, int64_t position, TimerUnit *unit) {
    int64_t within = position - base;
    if (within < 0 || within + TIMER_UNIT_SIZE > file->len) return 0;
    const uint8_t *at = (const uint8_t *)file->buf + within;
    unit->previous = get64(at + 4);
    unit->magic = (int32_t)get32(at + 12);
    unit->written = get64(at + 16);
    unit->offset = get64(at + 28);
    unit->size = (int32_t)get32(at + 36);
    return get32(at) == TIMER_UNIT_SIZE && unit->magic > 0 && unit->magic <= 0xF && unit->previous < position;
}

/* follow(timer_log, base, position, skip_to, most): positions of units from the newest on, as long as they are in this
 * file and take nothing back; those up to skip_to are left out. Also where it ended, and how many were passed.
 */
static PyObject *follow(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "follow(timer_log, base, position, skip_to, most)");
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

/* The properties of a message that waits, as parking leaves them: at their end is the place it belongs to. */
static int read_parked_properties(Text properties, Known *known, Text *topic, int64_t *queue_id) {
    if (!read_stored_properties(properties, known)) return 0;
    Text last = last_item(properties), before = last_item((Text){properties.at, last.at - properties.at});
    if (before.size <= 11 || memcmp(before.at, "REAL_TOPIC\1", 11) != 0 || last.size <= 9 || last.size > 19 ||
        memcmp(last.at, "REAL_QID\1", 9) != 0)
        return 0;
    *topic = (Text){before.at + 11, before.size - 11};
    return number_of((Text){last.at + 9, last.size - 9}, 0, queue_id) && *queue_id <= INT32_MAX &&
           !contains(properties, "__CRC32#");
}

/* What a record holds of the topic under which messages wait; 0 if it is another one. */
static int read_parked(enum Kind kind, const uint8_t *at, int64_t size, int64_t offset, Record *record, Text *topic,
                       int64_t *queue_id) {
    const char *name = PARKING_TOPICS[kind];
    const Py_ssize_t field_size = 1 + strlen(name);
    if (size < LEAST_RECORD || (int64_t)get32(at) != size || get32(at + 4) != MAGIC_V1 || (int64_t)get64(at + 28) != offset)
        return 0;
    record->flag = get32(at + 16);
    record->sys_flag = get32(at + 36);
    record->born = get64(at + 40);
    record->born_host = (Text){at + 48, record->sys_flag & BORN_HOST_V6 ? 20 : 8};
    Py_ssize_t head = 72 + record->born_host.size + (record->sys_flag & STORE_HOST_V6 ? 20 : 8);
    if (size < head) return 0;
    record->reconsumed = get32(at + head - 16);
    int64_t body_size = (int32_t)get32(at + head - 4), properties_at = head + body_size + field_size + 2;
    if (body_size < 0 || properties_at > size || at[head + body_size] != field_size - 1 ||
        memcmp(at + head + body_size + 1, name, field_size - 1) != 0 || properties_at + (int64_t)get16(at + properties_at - 2) != size)
        return 0;
    record->body = (Text){at + head, body_size};
    record->properties[0] = (Text){at + properties_at, size - properties_at};
    return !(record->sys_flag & (NOT_QUEUED | INNER_BATCH)) &&
           read_parked_properties(record->properties[0], &record->known, topic, queue_id);
}

/* Store a message that waited; ``behind`` are the properties that it gets for it. */
static int deliver_one(Runs *self, enum Kind kind, const uint8_t *at, int64_t size, int64_t offset, Text behind, Place *place) {
    Record record;
    Text topic;
    int64_t queue_id;
    if (!read_parked(kind, at, size, offset, &record, &topic, &queue_id) || record.body.size > self->max_body) return 0;
    Text properties = record.properties[0];
    if (kind == TIMED && (contains(properties, "TIMER_DEL_UNIQKEY") || contains(properties, "TIMER_ENQUEUE_MS") ||
                          contains(properties, "TIMER_DEQUEUE_MS")))
        return 0;
    Lane *lane = find_lane(self, topic.at, topic.size, queue_id, 0);
    if (lane == NULL) return want_lane(self, (const char *)topic.at, topic.size, queue_id, 0, 1);
    record.properties[1] = behind;
    record.properties[2] = (Text){behind.at, 0};
    record.code = tags_code(&record.known);
    return store(self, lane, &record, place);
}

/* When a message was entered into the timer and when it came out; nothing without an address for an error. */
static Text stamp(Runs *self, int64_t entered, int64_t now) {
    self->behind.size = 0;
    uint8_t *start = pile_more(&self->behind, 100), *end = start;
    if (start == NULL) return (Text){NULL, 0};
    end = put_decimal(put_word(end, "TIMER_ENQUEUE_MS\1"), entered);
    end = put_decimal(put_word(end, "\2TIMER_DEQUEUE_MS\1"), now);
    *end++ = 2;
    return (Text){start, end - start};
}

static PyObject *delivered_result(Runs *self, int taken, long long delivered, long long size, const Place *place) {
    PyObject *result = NULL, *entered = taken >= 0 ? enter_lanes(self, 1) : NULL;
    if (entered != NULL)
        result = Py_BuildValue("(LLLNNNL)", delivered, size, (long long)place->position, entered, pile_bytes(&self->hashes),
                               pile_bytes(&self->offsets), (long long)place->last_offset);
    untouch(self);
    return result;
}

/* deliver_units(units, source, source_base, first, end, log, position, limit, base, now, is_heard)
 *
 * The units are those of a queue of delayed messages that are due, their records between two offsets in one file of the
 * log. Returns what ``deliver`` does.
 */
static PyObject *Deliveries_deliver_units(Runs *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 11 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "deliver_units(units, …) takes 11 arguments, the first of which is bytes");
        return NULL;
    }
    int64_t source_base = PyLong_AsLongLong(args[2]), first = PyLong_AsLongLong(args[3]), end = PyLong_AsLongLong(args[4]);
    Py_buffer source, log;
    Place place = {0};
    if (PyErr_Occurred() || PyObject_GetBuffer(args[1], &source, PyBUF_SIMPLE) < 0) return NULL;
    if (begin_run(self, args + 5, &log, &place) < 0) {
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
        taken = deliver_one(self, DELAYED, at, size, offset, (Text){at, 0}, &place);
        if (taken != 1) break;
        sizes += size;
    }
    PyBuffer_Release(&log);
    PyBuffer_Release(&source);
    return delivered_result(self, taken, delivered, sizes, &place);
}

/* deliver(positions, timer_log, timer_base, source, source_base, first, end, most_bytes, log, position, limit, base, now,
 * is_heard)
 *
 * The positions are of units in one file of the timer log, their records between two offsets in one file of the log.
 * Returns how many were delivered, the sizes of their records together, and the rest as SendRuns.take does.
 */
static PyObject *Deliveries_deliver(Runs *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 14 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "deliver(positions, …) takes 14 arguments, the first of which is bytes");
        return NULL;
    }
    int64_t timer_base = PyLong_AsLongLong(args[2]), source_base = PyLong_AsLongLong(args[4]);
    int64_t first = PyLong_AsLongLong(args[5]), end = PyLong_AsLongLong(args[6]), most = PyLong_AsLongLong(args[7]);
    Py_buffer timer_log, source, log;
    Place place = {0};
    if (PyErr_Occurred() || PyObject_GetBuffer(args[1], &timer_log, PyBUF_SIMPLE) < 0) return NULL;
    if (PyObject_GetBuffer(args[3], &source, PyBUF_SIMPLE) < 0) { PyBuffer_Release(&timer_log); return NULL; }
    if (begin_run(self, args + 8, &log, &place) < 0) {
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
        if (!read_unit(&timer_log, timer_base, position, &unit) || unit.magic & ROLL || unit.size <= 0 ||
            unit.offset < first || unit.offset < source_base || unit.offset > end - unit.size)
            break;
        const uint8_t *at = (const uint8_t *)source.buf + (unit.offset - source_base);
        Text behind = stamp(self, unit.written, place.now);
        taken = behind.at == NULL ? -1 : deliver_one(self, TIMED, at, unit.size, unit.offset, behind, &place);
        if (taken != 1) break;
        delivered++;
        size += unit.size;
    }
    PyBuffer_Release(&log);
    PyBuffer_Release(&source);
    PyBuffer_Release(&timer_log);
    return delivered_result(self, taken, delivered, size, &place);
}

#endif
