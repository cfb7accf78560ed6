/* PULL: answers pulls that find messages, from received bytes to the response. Twin of broker/pull/processor.py and
 * store/reader.py, whose filter by tags codes is here too. A pull that finds nothing, has to wait or needs another response ends the batch. */
#include "broker/pull.h"
#include "base/results.h"
#include "broker/deferral.h"
#include "protocol/remoting_header.h"
#include "store/append.h"
#include "store/gather_records.h"
#include "store/queue_state.h"
#include "store/record_check.h"
#include "store/reput.h"
#include <time.h>

#define PULL_MESSAGE 11
#define LITE_PULL_MESSAGE 361
#define PULL_COMMITS 1

enum {
    PULL_GROUP, PULL_TOPIC, PULL_QUEUE, PULL_OFFSET, PULL_COUNT, PULL_FLAG, PULL_COMMIT, PULL_SUSPEND, PULL_VERSION,
    PULL_NEEDED, PULL_WHAT = PULL_NEEDED, PULL_KIND, PULL_BYTES, PULL_SOURCE, PULL_IN_BULK
};

typedef struct {
    Slice fields[PULL_IN_BULK];
    uint32_t present;
    int64_t code, opaque, queue_id, offset, wanted, most, flag, commit, most_bytes; /* wanted: as the client has it */
    int is_binary;
} Pull;

/* Read-ahead of queue units: a consumer mostly continues where its last pull ended. */
typedef struct { PyObject *route, *units; int64_t first; uint32_t revision; } UnitReadAhead;

#define READ_AHEADS 256 /* readers with a read-ahead; a power of two */

/* bytes of answers in one batch, as write_high_bytes of remoting/limits/connection_limits.py: the peer has to read */
#define MAX_ANSWER_BYTES (1024 * 1024)
#define UNITS_AHEAD 400 /* 8,000 bytes, of one or two pages of a queue's file */
#define MAX_FILTERED 2048 /* units that a client may have one pull with a filter examine, as MAX_IN_BULK of reader.py */

typedef struct {
    PyObject_HEAD
    PyObject *languages, *json_parts, *binary_parts, *remark, *routes, *missing;
    long language, version;
    int64_t most, most_bytes, least_bytes, copied, near;
    PyObject *warm; /* by beginning of a part of the log, until when it counts as resident */
    int64_t warm_size; /* of such a part */
    int64_t filtered; /* units that a pull with a filter examines */
    ByteBuffer key, head, units, skipped;
    int is_full; /* the last batch ended at MAX_ANSWER_BYTES */
    UnitReadAhead read_aheads[READ_AHEADS];
} PullServer;

static int which_of_pull(Slice name) {
    switch (name.size) {
        case 5: return slice_equals(name, "topic") ? PULL_TOPIC : -1;
        case 7: return slice_equals(name, "queueId") ? PULL_QUEUE : slice_equals(name, "sysFlag") ? PULL_FLAG : -1;
        case 10: return slice_equals(name, "maxMsgNums") ? PULL_COUNT : slice_equals(name, "subVersion") ? PULL_VERSION : -1;
        case 11: return slice_equals(name, "queueOffset") ? PULL_OFFSET : slice_equals(name, "maxMsgBytes") ? PULL_BYTES : -1;
        case 12:
            return slice_equals(name, "commitOffset") ? PULL_COMMIT : slice_equals(name, "subscription") ? PULL_WHAT : -1;
        case 13:
            return slice_equals(name, "consumerGroup")   ? PULL_GROUP
                   : slice_equals(name, "requestSource") ? PULL_SOURCE
                   : slice_equals(name, "orbitmqInBulk") ? PULL_IN_BULK
                                                    : -1;
        case 14: return slice_equals(name, "expressionType") ? PULL_KIND : -1;
        case 20: return slice_equals(name, "suspendTimeoutMillis") ? PULL_SUSPEND : -1;
        default: return -1;
    }
}

static int read_pull(const PullServer *self, const uint8_t *header, Py_ssize_t size, int is_binary, Pull *pull) {
    Request request;
    const Slice *fields = request.fields;
    int64_t unused;
    if (!(is_binary ? read_binary(header, header + size, which_of_pull, &request)
                    : read_json(header, header + size, self->languages, which_of_pull, &request)))
        return 0;
    const uint32_t needed = (1u << PULL_NEEDED) - 1, present = request.present;
    if (request.escaped || request.non_ascii || request.flag || (present & needed) != needed || present & 1u << PULL_IN_BULK ||
        (request.code != PULL_MESSAGE && request.code != LITE_PULL_MESSAGE))
        return 0;
    pull->is_binary = is_binary;
    pull->present = present;
    pull->code = request.code;
    pull->opaque = request.opaque;
    memcpy(pull->fields, fields, sizeof pull->fields);
    if (!int32_of(fields[PULL_QUEUE], &pull->queue_id) || pull->queue_id < 0 ||
        !number_of(fields[PULL_OFFSET], 0, &pull->offset) || !int32_of(fields[PULL_COUNT], &pull->wanted) ||
        !int32_of(fields[PULL_FLAG], &pull->flag) || !number_of(fields[PULL_COMMIT], -1, &pull->commit) ||
        pull->commit < -1 || !number_of(fields[PULL_SUSPEND], 0, &unused) ||
        !number_of(fields[PULL_VERSION], 0, &unused) ||
        (present & 1u << PULL_SOURCE && !int32_of(fields[PULL_SOURCE], &unused)))
        return 0;
    pull->most_bytes = self->most_bytes;
    if (present & 1u << PULL_BYTES) {
        if (!int32_of(fields[PULL_BYTES], &pull->most_bytes)) return 0;
        if (pull->most_bytes < self->least_bytes) pull->most_bytes = self->least_bytes;
        if (pull->most_bytes > self->most_bytes) pull->most_bytes = self->most_bytes;
    }
    pull->most = pull->wanted > self->most ? self->most : pull->wanted;
    if (pull->most < 1) pull->most = 1;
    return 1;
}

/* Route keys: all fields that the decision about a kind of pull depends on */

static PyObject *pull_key(PullServer *self, const Pull *pull) {
    static const int parts[] = {PULL_GROUP, PULL_TOPIC, PULL_QUEUE, PULL_FLAG, PULL_VERSION, PULL_WHAT, PULL_KIND};
    const int count = sizeof parts / sizeof *parts;
    Py_ssize_t size = 2;
    for (int n = 0; n < count; n++)
        size += 4 + (pull->present & 1u << parts[n] ? pull->fields[parts[n]].size : 0);
    self->key.size = 0;
    uint8_t *at = buffer_extend(&self->key, size);
    if (at == NULL) return NULL;
    put16(at, pull->code);
    at += 2;
    for (int n = 0; n < count; n++) {
        int is_there = pull->present >> parts[n] & 1;
        put32(at, is_there ? (uint32_t)pull->fields[parts[n]].size : UINT32_MAX);
        at += 4;
        if (is_there) at = put_bytes(at, pull->fields[parts[n]].at, pull->fields[parts[n]].size);
    }
    return buffer_bytes(&self->key);
}

static PyObject *pull_text(const Pull *pull, int part) {
    if (!(pull->present >> part & 1)) return Py_NewRef(Py_None);
    return PyUnicode_DecodeASCII((const char *)pull->fields[part].at, pull->fields[part].size, NULL);
}

static int miss_pull_route(PullServer *self, const Pull *pull, PyObject *key) {
    int64_t version = 0;
    number_of(pull->fields[PULL_VERSION], 0, &version);
    PyObject *missing = Py_BuildValue("(OLNNLLNLN)", key, (long long)pull->code, pull_text(pull, PULL_GROUP),
                                      pull_text(pull, PULL_TOPIC), (long long)pull->queue_id, (long long)pull->flag,
                                      pull_text(pull, PULL_WHAT), (long long)version, pull_text(pull, PULL_KIND));
    if (missing == NULL) return -1;
    Py_XSETREF(self->missing, missing);
    return 0;
}

/* Responses */

typedef struct { int64_t suggested, next, low, high, topic_flag, group_flag; } PullResponseFields;

static int put_pull_head(PullServer *self, const Pull *pull, const PullResponseFields *values, int64_t body_size) {
    PyObject *parts = pull->is_binary ? self->binary_parts : self->json_parts;
    Py_ssize_t remark_size = PyBytes_GET_SIZE(self->remark);
    self->head.size = 0;
    uint8_t *start = buffer_extend(&self->head, PREFIX_SIZE + BINARY_FIXED + 4 + parts_size(parts) + remark_size + 9 * 24);
    if (start == NULL) return -1;
    uint8_t *at = start + PREFIX_SIZE;
    if (pull->is_binary) {
        const int64_t numbers[] = {values->suggested, values->next, values->low, values->high, values->topic_flag, values->group_flag};
        put16(at, 0);
        at[2] = self->language;
        put16(at + 3, self->version);
        put32(at + 5, pull->opaque);
        put32(at + 9, 1);
        put32(at + 13, remark_size);
        uint8_t *fields = put_bytes(at + BINARY_FIXED, PyBytes_AS_STRING(self->remark), remark_size) + 4;
        at = fields;
        for (int n = 0; n < 6; n++) at = put_sized(put_part(at, parts, 2 * n), numbers[n]);
        at = put_part(at, parts, 12);
        put32(fields - 4, at - fields);
    } else {
        const int64_t numbers[] = {0, values->suggested, values->group_flag, values->next, values->high, values->low,
                                   values->topic_flag, pull->opaque};
        for (int n = 0; n < 8; n++) at = put_decimal(put_part(at, parts, n), numbers[n]);
        at = put_bytes(put_part(at, parts, 8), PyBytes_AS_STRING(self->remark), remark_size);
        at = put_part(at, parts, 9);
    }
    self->head.size = at - start;
    end_frame(start, at, pull->is_binary);
    put32(start, at - start - 4 + body_size);
    return 0;
}

/* 1 if a unit has the tags code of its record. Others are repaired by the Python path, which also compares codes that lead
 * to a unit of the queue's extension, and hashes tags that are not ASCII. */
static int has_tags_code(const RecordView *record, const uint8_t *unit) {
    ParsedProperties parsed;
    Slice delay;
    find_indexed_properties(record->properties, &parsed, &delay);
    return is_ascii(parsed.tags.at, parsed.tags.size) && tags_code(&parsed) == (int64_t)get64(unit + 12);
}

/* 1 if records written by an earlier process are whole, of this topic, and have the tags codes of their units. */
static int are_whole(const Pull *pull, const uint8_t *units, const Gathered *found, int64_t base, const LogWindow *log_window,
                     const Py_buffer *log, int is_light) {
    Slice topic = pull->fields[PULL_TOPIC];
    for (Py_ssize_t n = 0; n < found->count; n++) {
        int64_t offset = (int64_t)get64(units + n * UNIT_SIZE), at = offset - base;
        if (offset >= log_window->checked_from) break;
        RecordView view;
        if (at < 0 || at >= log->len || !view_record((uint8_t *)log->buf + at, log->len - at, offset, 1, &view) ||
            view.size != get32(units + n * UNIT_SIZE + 8) ||
            (!is_light && (view.topic.size != topic.size || memcmp(view.topic.at, topic.at, topic.size) != 0 ||
                           !has_tags_code(&view, units + n * UNIT_SIZE))))
            return 0;
    }
    return 1;
}

/* The whole response; NULL with an error, or without one if the pull needs the Python path. */
static PyObject *answer_of(PullServer *self, const Pull *pull, const uint8_t *units, const Gathered *found, const LogWindow *log_window,
                           const PullResponseFields *fields, const uint32_t *skipped) {
    int64_t base = found->first - found->first % log_window->file_size;
    Slice topic = pull->fields[PULL_TOPIC];
    int is_light = topic.size >= 5 && memcmp(topic.at, "%LMQ%", 5) == 0;
    PyObject *first = PyLong_FromLongLong(found->first), *answer = NULL;
    PyObject *buffer = first == NULL ? NULL : PyObject_CallOneArg(log_window->buffer_at, first);
    Py_XDECREF(first);
    if (buffer == NULL) return NULL;
    Py_buffer log;
    if (buffer != Py_None && PyObject_GetBuffer(buffer, &log, PyBUF_SIMPLE) == 0) {
        if (found->stop - base <= log.len &&
            are_of_queue(units, found, base, &log, pull->queue_id, is_light ? -1 : pull->offset, skipped) &&
            are_whole(pull, units, found, base, log_window, &log, is_light) &&
            put_pull_head(self, pull, fields, found->total) == 0) {
            answer = PyBytes_FromStringAndSize(NULL, self->head.size + found->total);
            if (answer != NULL) {
                uint8_t *out = put_bytes((uint8_t *)PyBytes_AS_STRING(answer), self->head.data, self->head.size);
                if (!copy_records(units, found, base, &log, out)) Py_CLEAR(answer);
            }
        }
        PyBuffer_Release(&log);
    }
    Py_DECREF(buffer);
    return answer;
}

/* 1 if a part of the log was resident a moment ago, 0 if that is not known, -1 for an error. */
static int is_warm(const PullServer *self, int64_t at, const LogWindow *log_window) {
    PyObject *part = PyLong_FromLongLong(at - at % log_window->file_size % self->warm_size);
    PyObject *until = part == NULL ? NULL : PyDict_GetItemWithError(self->warm, part); /* borrowed */
    Py_XDECREF(part);
    if (until == NULL) return PyErr_Occurred() ? -1 : 0;
    return PyFloat_Check(until) && PyFloat_AS_DOUBLE(until) > log_window->now;
}

/* 1 if no record has to be fetched first, 0 if one has, -1 for an error. As ColdData of store/commitlog/cold_data.py
 * decides, which is called where the answer is not plain. */
static int is_resident(const PullServer *self, const uint8_t *units, const Gathered *found, const LogWindow *log_window) {
    if (found->first >= log_window->checked_from && log_window->end - found->first <= self->near) return 1;
    if (found->stop - found->first <= self->warm_size) {
        int is_known = is_warm(self, found->first, log_window);
        if (is_known == 1) is_known = is_warm(self, found->stop - 1, log_window);
        if (is_known != 0) return is_known;
    }
    PyObject *arguments = PyBytes_FromStringAndSize((const char *)units, found->count * UNIT_SIZE);
    PyObject *cold_ranges = arguments == NULL ? NULL : PyObject_CallOneArg(log_window->cold_ranges, arguments);
    int is_missing = cold_ranges == NULL ? -1 : PyObject_IsTrue(cold_ranges);
    Py_XDECREF(arguments);
    Py_XDECREF(cold_ranges);
    return is_missing < 0 ? -1 : !is_missing;
}

/* Call the queue's own read. */
static PyObject *call_read(PyObject *read, int64_t number, int64_t most) {
    PyObject *arguments[] = {PyLong_FromLongLong(number), PyLong_FromLongLong(most)};
    PyObject *units = arguments[0] == NULL || arguments[1] == NULL ? NULL : PyObject_Vectorcall(read, arguments, 2, NULL);
    Py_XDECREF(arguments[0]);
    Py_XDECREF(arguments[1]);
    if (units != NULL && !PyBytes_Check(units)) {
        PyErr_SetString(PyExc_TypeError, "units are bytes");
        Py_CLEAR(units);
    }
    return units;
}

static UnitReadAhead *ahead_of(PullServer *self, PyObject *route) {
    return &self->read_aheads[((uintptr_t)route / 16 * 0x9E3779B97F4A7C15ull >> 32) & (READ_AHEADS - 1)];
}

static int has_units(const UnitReadAhead *read_ahead, PyObject *route, const QueueStateObject *queue, int64_t number, int64_t most) {
    return read_ahead->route == route && read_ahead->revision == queue->revision && number >= read_ahead->first &&
           number + most <= read_ahead->first + PyBytes_GET_SIZE(read_ahead->units) / UNIT_SIZE;
}

static void drop_read_ahead(UnitReadAhead *read_ahead) {
    Py_CLEAR(read_ahead->route);
    Py_CLEAR(read_ahead->units);
}

/* Find units of a queue from a number that it has on; how many there are, or -1 for an error. Those in the tail are in
 * memory; of others some more are read ahead. What was read ahead is used if it has `enough`. Valid until anything else is
 * read. */
static int64_t find_units(PullServer *self, PyObject *route, int64_t number, int64_t most, int64_t enough, const uint8_t **units) {
    const QueueStateObject *queue = (QueueStateObject *)PyTuple_GET_ITEM(route, 0);
    if (move_fresh_to_tail(queue->at) < 0) return -1;
    const uint8_t *from = queue->at->tail;
    int64_t first = queue->tail_start, count = queue->at->tail_size / UNIT_SIZE;
    if (number < first) {
        UnitReadAhead *read_ahead = ahead_of(self, route);
        if (!has_units(read_ahead, route, queue, number, enough)) {
            uint32_t revision = queue->revision;
            PyObject *found = call_read(PyTuple_GET_ITEM(route, 1), number, most < UNITS_AHEAD ? UNITS_AHEAD : most);
            if (found == NULL) return -1;
            Py_XSETREF(read_ahead->route, Py_NewRef(route));
            Py_XSETREF(read_ahead->units, found);
            read_ahead->first = number;
            read_ahead->revision = revision;
        }
        from = (const uint8_t *)PyBytes_AS_STRING(read_ahead->units);
        first = read_ahead->first;
        count = PyBytes_GET_SIZE(read_ahead->units) / UNIT_SIZE;
    }
    count -= number - first;
    if (count <= 0) return 0;
    *units = from + (number - first) * UNIT_SIZE;
    return count > most ? most : count;
}

/* Copy units of a queue to self->units: as many as wanted or as lie together; -1 for an error. */
static int read_units(PullServer *self, PyObject *route, int64_t number, int64_t most) {
    const uint8_t *from;
    int64_t count = find_units(self, route, number, most, most, &from);
    self->units.size = 0;
    if (count <= 0) return (int)count;
    uint8_t *to = buffer_extend(&self->units, count * UNIT_SIZE);
    if (to == NULL) return -1;
    memcpy(to, from, count * UNIT_SIZE);
    return 0;
}

/* Filters by tags codes */

static int is_wanted(PyObject *codes, int64_t code) {
    const uint8_t *at = (const uint8_t *)PyBytes_AS_STRING(codes), *end = at + PyBytes_GET_SIZE(codes);
    for (; at < end; at += 4)
        if (get32(at) == (uint32_t)code) return 1;
    return 0;
}

/* True if the Python path would read the unit as this one does: its record was written by this process, lies behind the
 * one before and in memory, and its tags code is a hash. */
static int is_plain_unit(int64_t at, int32_t size, int64_t code, int64_t stop, const LogWindow *log_window) {
    return size > 0 && at >= stop && at >= log_window->first && at >= log_window->checked_from && at <= log_window->end - size &&
           log_window->end - at <= log_window->window && code == (int32_t)code;
}

/* Select units with one of the codes, with those before them that were left out counted in `skipped`. Returns how many were
 * examined, 0 if one is for the Python path, -1 for an error. */
static int64_t select_units(ByteBuffer *selected, ByteBuffer *skipped, PyObject *codes, int64_t most, int64_t most_bytes,
                            const uint8_t *units, int64_t count, const LogWindow *log_window) {
    int64_t stop = 0, total = 0, examined = 0, found = 0;
    selected->size = skipped->size = 0;
    for (; examined < count; examined++) {
        const uint8_t *unit = units + examined * UNIT_SIZE;
        int64_t at = (int64_t)get64(unit), code = (int64_t)get64(unit + 12);
        int32_t size = (int32_t)get32(unit + 8);
        if (!is_plain_unit(at, size, code, stop, log_window)) return 0;
        if (found > 0 && (found >= most || total + size > most_bytes)) break;
        stop = at + size;
        if (!is_wanted(codes, code)) continue;
        uint8_t *to = buffer_extend(selected, UNIT_SIZE), *before = buffer_extend(skipped, 4);
        if (to == NULL || before == NULL) return -1;
        memcpy(to, unit, UNIT_SIZE);
        uint32_t left_out = (uint32_t)(examined - found);
        memcpy(before, &left_out, 4);
        total += size;
        found++;
    }
    return examined;
}

/* Read the units of a pull with a filter, and select, to self->units and self->skipped. As select_units. */
static int64_t read_selected(PullServer *self, const Pull *pull, PyObject *route, PyObject *codes, const LogWindow *log_window) {
    const QueueStateObject *queue = (QueueStateObject *)PyTuple_GET_ITEM(route, 0);
    const uint8_t *units;
    int64_t limit = pull->wanted < MAX_FILTERED ? pull->wanted : MAX_FILTERED;
    if (limit < self->filtered) limit = self->filtered;
    if (limit < 1) return 0;
    /* Mostly the answer is full before the units end that were read ahead. */
    for (int64_t enough = 1;; enough = limit) {
        int64_t count = find_units(self, route, pull->offset, limit, enough, &units);
        if (count <= 0) return count;
        int64_t examined = select_units(&self->units, &self->skipped, codes, pull->most, pull->most_bytes, units, count, log_window);
        if (examined < count || count >= limit || enough == limit || pull->offset + count >= queue->at->end) return examined;
    }
}

/* The Pulled result of a pull, or NULL; without an error the pull is for the Python path. */
static PyObject *answer_from(PullServer *self, const Pull *pull, PyObject *route, const LogWindow *log_window) {
    PullResponseFields fields;
    Gathered found;
    const QueueStateObject *queue = (QueueStateObject *)PyTuple_GET_ITEM(route, 0);
    PyObject *group_and_queue = PyTuple_GET_ITEM(route, 4);
    fields.low = queue->min_offset;
    fields.high = queue->at->end;
    if (pull->offset < fields.low || pull->offset >= fields.high) return NULL;
    PyObject *entry = NULL, *codes = PyTuple_GET_ITEM(route, 6);
    int64_t examined = 0;
    if (codes == Py_None) {
        if (read_units(self, route, pull->offset, pull->most) < 0) return NULL;
    } else {
        examined = read_selected(self, pull, route, codes, log_window);
        if (examined <= 0) return NULL;
    }
    const uint8_t *data = self->units.data;
    if (find_records(data, self->units.size / UNIT_SIZE, pull->most_bytes, &found) && found.first >= log_window->first &&
        found.stop <= log_window->end && log_window->end - found.first <= log_window->window && found.total <= self->copied &&
        is_resident(self, data, &found, log_window) == 1) {
        fields.next = pull->offset + (codes == Py_None ? found.count : examined);
        fields.topic_flag = PyLong_AsLongLong(PyTuple_GET_ITEM(route, 2));
        fields.group_flag = PyLong_AsLongLong(PyTuple_GET_ITEM(route, 3));
        fields.suggested = PyLong_AsLongLong(PyTuple_GET_ITEM(route, 5));
        const uint32_t *skipped = codes == Py_None ? NULL : (const uint32_t *)self->skipped.data;
        PyObject *answer = answer_of(self, pull, data, &found, log_window, &fields, skipped);
        if (answer != NULL)
            entry = make_result(RESULT_PULLED, Py_NewRef(group_and_queue), from_int(fields.next), from_int(found.count), from_int(found.total),
                                from_int(pull->flag & PULL_COMMITS ? pull->commit : -1), answer);
    }
    return entry;
}

static PyObject *answer_pull(PullServer *self, const uint8_t *header, Py_ssize_t size, int is_binary, const LogWindow *log_window) {
    Pull pull;
    if (!read_pull(self, header, size, is_binary, &pull)) return NULL;
    PyObject *key = pull_key(self, &pull);
    if (key == NULL) return NULL;
    PyObject *route = PyDict_GetItemWithError(self->routes, key); /* borrowed */
    if (route == NULL && !PyErr_Occurred()) miss_pull_route(self, &pull, key);
    Py_DECREF(key);
    if (route == NULL || route == Py_None) return NULL;
    Py_INCREF(route);
    PyObject *entry = answer_from(self, &pull, route, log_window);
    Py_DECREF(route);
    return entry;
}

/* answer(data, first, end, window, checked_from, file_size, buffer_at, cold_ranges) */
static PyObject *PullServer_answer(PullServer *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 8 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "answer(data, first, end, window, checked_from, file_size, buffer_at, cold_ranges)");
        return NULL;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* as time.monotonic of Python */
    LogWindow log_window = {PyLong_AsLongLong(args[1]), PyLong_AsLongLong(args[2]), PyLong_AsLongLong(args[3]),
                   PyLong_AsLongLong(args[4]), PyLong_AsLongLong(args[5]), args[6], args[7], now.tv_sec + now.tv_nsec * 1e-9};
    if (PyErr_Occurred()) return NULL;
    Py_CLEAR(self->missing);
    Py_ssize_t answered = 0;
    self->is_full = 0;
    PyObject *taken = PyList_New(0);
    if (taken == NULL) return NULL;
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(args[0]), *at = start, *end = start + PyBytes_GET_SIZE(args[0]);
    while (end - at >= PREFIX_SIZE) {
        uint32_t length = get32(at), word = get32(at + 4);
        Py_ssize_t header_size = word & 0xFFFFFF;
        /* Without a body, as all clients send it. */
        if (length > INT32_MAX || word >> 24 > 1 || header_size > MAX_HEADER || header_size + 4 != (Py_ssize_t)length || end - at - 4 < (Py_ssize_t)length) break;
        PyObject *entry = answer_pull(self, at + PREFIX_SIZE, header_size, word >> 24, &log_window);
        if (entry == NULL) break;
        int is_noted = PyList_Append(taken, entry);
        answered += PyBytes_GET_SIZE(PyTuple_GET_ITEM(entry, 5));
        Py_DECREF(entry);
        if (is_noted < 0) break;
        at += 4 + (Py_ssize_t)length;
        if (answered >= MAX_ANSWER_BYTES) {
            self->is_full = 1;
            break;
        }
    }
    if (PyErr_Occurred()) {
        Py_DECREF(taken);
        return NULL;
    }
    return Py_BuildValue("(nN)", (Py_ssize_t)(at - start), taken);
}

static PyObject *PullServer_add_route(PullServer *self, PyObject *args) {
    PyObject *key, *queue, *read, *group_and_queue, *codes;
    long long topic_flag, group_flag, suggested;
    if (!PyArg_ParseTuple(args, "SO!OLLOLO", &key, &QueueStateType, &queue, &read, &topic_flag, &group_flag, &group_and_queue, &suggested, &codes)) return NULL;
    if (codes != Py_None && (!PyBytes_Check(codes) || PyBytes_GET_SIZE(codes) % 4)) {
        PyErr_SetString(PyExc_TypeError, "codes are four bytes each, or None");
        return NULL;
    }
    PyObject *route = Py_BuildValue("(OOLLOLO)", queue, read, topic_flag, group_flag, group_and_queue, suggested, codes);
    if (route == NULL) return NULL;
    int is_set = PyDict_SetItem(self->routes, key, route);
    Py_DECREF(route);
    if (is_set < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *PullServer_close_route(PullServer *self, PyObject *key) {
    if (PyDict_SetItem(self->routes, key, Py_None) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *PullServer_clear_routes(PullServer *self, PyObject *Py_UNUSED(unused)) {
    PyDict_Clear(self->routes);
    for (int n = 0; n < READ_AHEADS; n++) drop_read_ahead(&self->read_aheads[n]);
    Py_RETURN_NONE;
}

static PyObject *PullServer_get_missing_route(PullServer *self, void *Py_UNUSED(unused)) {
    return Py_NewRef(self->missing == NULL ? Py_None : self->missing);
}

static PyObject *PullServer_get_is_full(PullServer *self, void *Py_UNUSED(unused)) { return PyBool_FromLong(self->is_full); }

static PyObject *PullServer_get_route_count(PullServer *self, void *Py_UNUSED(unused)) {
    return PyLong_FromSsize_t(PyDict_GET_SIZE(self->routes));
}

static int PullServer_init(PullServer *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"languages", "json_parts", "binary_parts", "remark", "language", "version", "most", "most_bytes",
                            "least_bytes", "copied", "near", "warm", "warm_size", "filtered", NULL};
    PyObject *languages, *json_parts, *binary_parts, *remark, *warm;
    long long most, most_bytes, least_bytes, copied, near, warm_size, filtered;
    PyTypeObject *tuple = &PyTuple_Type;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$O!O!O!SllLLLLLO!LL", names, tuple, &languages, tuple, &json_parts, tuple,
                                     &binary_parts, &remark, &self->language, &self->version, &most, &most_bytes,
                                     &least_bytes, &copied, &near, &PyDict_Type, &warm, &warm_size, &filtered))
        return -1;
    if (!are_bytes(languages) || !are_bytes(json_parts) || !are_bytes(binary_parts)) return -1;
    if (PyTuple_GET_SIZE(json_parts) != 10 || PyTuple_GET_SIZE(binary_parts) != 13) {
        PyErr_SetString(PyExc_ValueError, "a response has 9 values in JSON and 12 in binary");
        return -1;
    }
    if (warm_size <= 0) {
        PyErr_SetString(PyExc_ValueError, "warm_size must be positive");
        return -1;
    }
    PyObject *routes = PyDict_New();
    if (routes == NULL) return -1;
    Py_XSETREF(self->routes, routes);
    Py_XSETREF(self->warm, Py_NewRef(warm));
    self->warm_size = warm_size;
    self->filtered = filtered;
    Py_XSETREF(self->languages, Py_NewRef(languages));
    Py_XSETREF(self->json_parts, Py_NewRef(json_parts));
    Py_XSETREF(self->binary_parts, Py_NewRef(binary_parts));
    Py_XSETREF(self->remark, Py_NewRef(remark));
    self->most = most;
    self->most_bytes = most_bytes;
    self->least_bytes = least_bytes;
    self->copied = copied;
    self->near = near;
    return 0;
}

static int PullServer_traverse(PullServer *self, visitproc visit, void *arg) {
    Py_VISIT(self->routes);
    Py_VISIT(self->warm);
    for (int n = 0; n < READ_AHEADS; n++) Py_VISIT(self->read_aheads[n].route);
    return 0;
}

static int PullServer_clear(PullServer *self) {
    Py_CLEAR(self->routes);
    Py_CLEAR(self->warm);
    for (int n = 0; n < READ_AHEADS; n++) drop_read_ahead(&self->read_aheads[n]);
    return 0;
}

static void PullServer_dealloc(PullServer *self) {
    PyObject_GC_UnTrack(self);
    PullServer_clear(self);
    Py_XDECREF(self->languages);
    Py_XDECREF(self->json_parts);
    Py_XDECREF(self->binary_parts);
    Py_XDECREF(self->remark);
    Py_XDECREF(self->missing);
    buffer_free(&self->key);
    buffer_free(&self->head);
    buffer_free(&self->units);
    buffer_free(&self->skipped);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef PullServer_methods[] = {
    {"answer", (PyCFunction)(void (*)(void))PullServer_answer, METH_FASTCALL, "Answer the pulls that data begins with."},
    {"add_route", (PyCFunction)PullServer_add_route, METH_VARARGS, "Open a route for a kind of pull."},
    {"close_route", (PyCFunction)PullServer_close_route, METH_O, "Leave a kind of pull to the Python path."},
    {"clear_routes", (PyCFunction)PullServer_clear_routes, METH_NOARGS, "Drop all routes."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef PullServer_getset[] = {
    {"missing_route", (getter)PullServer_get_missing_route, NULL, "The route for whose lack the last call ended, or None.", NULL},
    {"is_full", (getter)PullServer_get_is_full, NULL, "True if the last call ended because its answers reached the limit of bytes.", NULL},
    {"route_count", (getter)PullServer_get_route_count, NULL, "Number of routes.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject PullServerType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.native._native.PullServer",
    .tp_doc = "Answers pulls from queues that have a route.",
    .tp_basicsize = sizeof(PullServer),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)PullServer_init,
    .tp_dealloc = (destructor)PullServer_dealloc,
    .tp_traverse = (traverseproc)PullServer_traverse,
    .tp_clear = (inquiry)PullServer_clear,
    .tp_methods = PullServer_methods,
    .tp_getset = PullServer_getset,
};
