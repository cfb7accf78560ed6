/* Pulls that find messages, from the bytes of a connection to their answers: the compiled twin of broker/pull.py and
 * store/reading.py. One that finds nothing, has to wait, or is told anything else ends a run.
 */
#ifndef ORBITMQ_PULLING_H
#define ORBITMQ_PULLING_H
#include "ends.h"
#include "gathering.h"
#include "parking.h"
#include "request_header.h"
#include "seeing.h"
#include <time.h>

#define PULL_MESSAGE 11
#define LITE_PULL_MESSAGE 361
#define PULL_COMMITS 1

enum {
    PULL_GROUP, PULL_TOPIC, PULL_QUEUE, PULL_OFFSET, PULL_COUNT, PULL_FLAG, PULL_COMMIT, PULL_SUSPEND, PULL_VERSION,
    PULL_NEEDED, PULL_WHAT = PULL_NEEDED, PULL_KIND, PULL_BYTES, PULL_SOURCE, PULL_IN_BULK
};

typedef struct {
    Text fields[PULL_IN_BULK];
    uint32_t present;
    int64_t code, opaque, queue_id, offset, most, flag, commit, most_bytes;
    int is_binary;
} Pull;

/* What lies in the log and may be given: from where to where, how near to the end it has to be, from where on it was
 * written by this process and need not be checked; and how to ask for a file, and for what of the records may have to
 * be fetched from the disk. */
typedef struct { int64_t first, end, window, checked_from, file_size; PyObject *buffer_at, *gap; double now; } Shelf;

/* Units of a queue that a reader will want next: mostly it goes on where its last pull ended. */
typedef struct { PyObject *lane, *units; int64_t first; uint32_t revision; } Ahead;

#define AHEADS 256 /* readers for which there are some; a power of two */
#define UNITS_AHEAD 400 /* 8,000 bytes, of one or two pages of a queue's file */

typedef struct {
    PyObject_HEAD
    PyObject *languages, *json_parts, *binary_parts, *remark, *lanes, *missing;
    long language, version;
    int64_t most, most_bytes, least_bytes, copied, near;
    PyObject *warm; /* until when parts of the log are taken for in memory, by where they begin */
    int64_t warm_size; /* of such a part */
    Pile key, head, units;
    Ahead aheads[AHEADS];
} Pulls;

static int which_of_pull(Text name) {
    switch (name.size) {
        case 5: return is_text(name, "topic") ? PULL_TOPIC : -1;
        case 7: return is_text(name, "queueId") ? PULL_QUEUE : is_text(name, "sysFlag") ? PULL_FLAG : -1;
        case 10: return is_text(name, "maxMsgNums") ? PULL_COUNT : is_text(name, "subVersion") ? PULL_VERSION : -1;
        case 11: return is_text(name, "queueOffset") ? PULL_OFFSET : is_text(name, "maxMsgBytes") ? PULL_BYTES : -1;
        case 12:
            return is_text(name, "commitOffset") ? PULL_COMMIT : is_text(name, "subscription") ? PULL_WHAT : -1;
        case 13:
            return is_text(name, "consumerGroup")   ? PULL_GROUP
                   : is_text(name, "requestSource") ? PULL_SOURCE
                   : is_text(name, "orbitmqInBulk") ? PULL_IN_BULK
                                                    : -1;
        case 14: return is_text(name, "expressionType") ? PULL_KIND : -1;
        case 20: return is_text(name, "suspendTimeoutMillis") ? PULL_SUSPEND : -1;
        default: return -1;
    }
}

static int read_pull(const Pulls *self, const uint8_t *header, Py_ssize_t size, int is_binary, Pull *pull) {
    Request request;
    const Text *fields = request.fields;
    int64_t unused;
    if (!(is_binary ? read_binary(header, header + size, which_of_pull, &request)
                    : read_json(header, header + size, self->languages, which_of_pull, &request)))
        return 0;
    const uint32_t needed = (1u << PULL_NEEDED) - 1, present = request.present;
    if (request.escaped || request.flag || (present & needed) != needed || present & 1u << PULL_IN_BULK ||
        (request.code != PULL_MESSAGE && request.code != LITE_PULL_MESSAGE))
        return 0;
    pull->is_binary = is_binary;
    pull->present = present;
    pull->code = request.code;
    pull->opaque = request.opaque;
    memcpy(pull->fields, fields, sizeof pull->fields);
    if (!int32_of(fields[PULL_QUEUE], &pull->queue_id) || pull->queue_id < 0 ||
        !number_of(fields[PULL_OFFSET], 0, &pull->offset) || !int32_of(fields[PULL_COUNT], &pull->most) ||
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
    if (pull->most > self->most) pull->most = self->most;
    if (pull->most < 1) pull->most = 1;
    return 1;
}

/* Lanes: what was decided about the pulls of one group from one queue, by all that this may depend on */

static PyObject *pull_key(Pulls *self, const Pull *pull) {
    static const int parts[] = {PULL_GROUP, PULL_TOPIC, PULL_QUEUE, PULL_FLAG, PULL_VERSION, PULL_WHAT, PULL_KIND};
    const int count = sizeof parts / sizeof *parts;
    Py_ssize_t size = 2;
    for (int n = 0; n < count; n++)
        size += 4 + (pull->present & 1u << parts[n] ? pull->fields[parts[n]].size : 0);
    self->key.size = 0;
    uint8_t *at = pile_more(&self->key, size);
    if (at == NULL) return NULL;
    put16(at, pull->code);
    at += 2;
    for (int n = 0; n < count; n++) {
        int is_there = pull->present >> parts[n] & 1;
        put32(at, is_there ? (uint32_t)pull->fields[parts[n]].size : UINT32_MAX);
        at += 4;
        if (is_there) at = put_text(at, pull->fields[parts[n]].at, pull->fields[parts[n]].size);
    }
    return pile_bytes(&self->key);
}

static PyObject *pull_text(const Pull *pull, int part) {
    if (!(pull->present >> part & 1)) return Py_NewRef(Py_None);
    return PyUnicode_DecodeASCII((const char *)pull->fields[part].at, pull->fields[part].size, NULL);
}

static int want_pull_lane(Pulls *self, const Pull *pull, PyObject *key) {
    int64_t version = 0;
    number_of(pull->fields[PULL_VERSION], 0, &version);
    PyObject *missing = Py_BuildValue("(OLNNLLNLN)", key, (long long)pull->code, pull_text(pull, PULL_GROUP),
                                      pull_text(pull, PULL_TOPIC), (long long)pull->queue_id, (long long)pull->flag,
                                      pull_text(pull, PULL_WHAT), (long long)version, pull_text(pull, PULL_KIND));
    if (missing == NULL) return -1;
    Py_XSETREF(self->missing, missing);
    return 0;
}

/* Answers */

typedef struct { int64_t next, low, high, topic_flag, group_flag; } Standing;

static int put_pull_head(Pulls *self, const Pull *pull, const Standing *standing, int64_t body_size) {
    PyObject *parts = pull->is_binary ? self->binary_parts : self->json_parts;
    Py_ssize_t remark_size = PyBytes_GET_SIZE(self->remark);
    self->head.size = 0;
    uint8_t *start = pile_more(&self->head, PREFIX_SIZE + BINARY_FIXED + 4 + parts_size(parts) + remark_size + 9 * 24);
    if (start == NULL) return -1;
    uint8_t *at = start + PREFIX_SIZE;
    if (pull->is_binary) {
        const int64_t numbers[] = {0, standing->next, standing->low, standing->high, standing->topic_flag, standing->group_flag};
        put16(at, 0);
        at[2] = self->language;
        put16(at + 3, self->version);
        put32(at + 5, pull->opaque);
        put32(at + 9, 1);
        put32(at + 13, remark_size);
        uint8_t *fields = put_text(at + BINARY_FIXED, PyBytes_AS_STRING(self->remark), remark_size) + 4;
        at = fields;
        for (int n = 0; n < 6; n++) at = put_sized(put_part(at, parts, 2 * n), numbers[n]);
        at = put_part(at, parts, 12);
        put32(fields - 4, at - fields);
    } else {
        const int64_t numbers[] = {0, 0, standing->group_flag, standing->next, standing->high, standing->low,
                                   standing->topic_flag, pull->opaque};
        for (int n = 0; n < 8; n++) at = put_decimal(put_part(at, parts, n), numbers[n]);
        at = put_text(put_part(at, parts, 8), PyBytes_AS_STRING(self->remark), remark_size);
        at = put_part(at, parts, 9);
    }
    self->head.size = at - start;
    end_frame(start, at, pull->is_binary);
    put32(start, at - start - 4 + body_size);
    return 0;
}

/* Whether records that an earlier process wrote are still what it wrote. */
static int are_whole(const uint8_t *units, const Gathered *found, int64_t base, const Shelf *shelf, const Py_buffer *log) {
    for (Py_ssize_t n = 0; n < found->count; n++) {
        int64_t offset = (int64_t)get64(units + n * UNIT_SIZE), at = offset - base;
        if (offset >= shelf->checked_from) break;
        Seen seen;
        if (at < 0 || at >= log->len || !see((uint8_t *)log->buf + at, log->len - at, offset, 1, &seen) ||
            seen.size != get32(units + n * UNIT_SIZE + 8))
            return 0;
    }
    return 1;
}

/* The whole answer; NULL with an error, or without one if this is not simple. */
static PyObject *answer_of(Pulls *self, const Pull *pull, const uint8_t *units, const Gathered *found, const Shelf *shelf,
                           const Standing *standing) {
    int64_t base = found->first - found->first % shelf->file_size;
    PyObject *first = PyLong_FromLongLong(found->first), *answer = NULL;
    PyObject *buffer = first == NULL ? NULL : PyObject_CallOneArg(shelf->buffer_at, first);
    Py_XDECREF(first);
    if (buffer == NULL) return NULL;
    Py_buffer log;
    if (buffer != Py_None && PyObject_GetBuffer(buffer, &log, PyBUF_SIMPLE) == 0) {
        if (found->stop - base <= log.len && are_whole(units, found, base, shelf, &log) &&
            put_pull_head(self, pull, standing, found->total) == 0) {
            answer = PyBytes_FromStringAndSize(NULL, self->head.size + found->total);
            if (answer != NULL) {
                uint8_t *out = put_text((uint8_t *)PyBytes_AS_STRING(answer), self->head.data, self->head.size);
                if (!copy_records(units, found, base, &log, out)) Py_CLEAR(answer);
            }
        }
        PyBuffer_Release(&log);
    }
    Py_DECREF(buffer);
    return answer;
}

/* 1 if a place in the log was in memory a moment ago, 0 if that is not known, -1 for an error. */
static int is_warm(const Pulls *self, int64_t at, const Shelf *shelf) {
    PyObject *part = PyLong_FromLongLong(at - at % shelf->file_size % self->warm_size);
    PyObject *until = part == NULL ? NULL : PyDict_GetItemWithError(self->warm, part); /* borrowed */
    Py_XDECREF(part);
    if (until == NULL) return PyErr_Occurred() ? -1 : 0;
    return PyFloat_Check(until) && PyFloat_AS_DOUBLE(until) > shelf->now;
}

/* 1 if none of the records has to be fetched first, 0 if one has, -1 for an error. As ColdLog.gap of store/cold_log.py says,
 * which is asked where the answer is not plain. */
static int is_at_hand(const Pulls *self, const uint8_t *units, const Gathered *found, const Shelf *shelf) {
    if (found->first >= shelf->checked_from && shelf->end - found->first <= self->near) return 1;
    if (found->stop - found->first <= self->warm_size) {
        int is_known = is_warm(self, found->first, shelf);
        if (is_known == 1) is_known = is_warm(self, found->stop - 1, shelf);
        if (is_known != 0) return is_known;
    }
    PyObject *asked = PyBytes_FromStringAndSize((const char *)units, found->count * UNIT_SIZE);
    PyObject *gap = asked == NULL ? NULL : PyObject_CallOneArg(shelf->gap, asked);
    int is_missing = gap == NULL ? -1 : PyObject_IsTrue(gap);
    Py_XDECREF(asked);
    Py_XDECREF(gap);
    return is_missing < 0 ? -1 : !is_missing;
}

/* Units of a queue as it gives them itself. */
static PyObject *read_units(PyObject *read, int64_t number, int64_t most) {
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

static Ahead *ahead_of(Pulls *self, PyObject *lane) {
    return &self->aheads[((uintptr_t)lane / 16 * 0x9E3779B97F4A7C15ull >> 32) & (AHEADS - 1)];
}

static int has_units(const Ahead *ahead, PyObject *lane, const QueueEnd *queue, int64_t number, int64_t most) {
    return ahead->lane == lane && ahead->revision == queue->revision && number >= ahead->first &&
           number + most <= ahead->first + PyBytes_GET_SIZE(ahead->units) / UNIT_SIZE;
}

static void forget_ahead(Ahead *ahead) {
    Py_CLEAR(ahead->lane);
    Py_CLEAR(ahead->units);
}

/* Have units of a queue from a number on that it has, as many as are wanted or there are in one place, in self->units;
 * -1 for an error. Those in its tail are at hand, of others some more are kept than are wanted now. */
static int take_units(Pulls *self, PyObject *lane, int64_t number, int64_t most) {
    const QueueEnd *queue = (QueueEnd *)PyTuple_GET_ITEM(lane, 0);
    if (settle(queue->at) < 0) return -1;
    const uint8_t *from = queue->at->tail;
    int64_t first = queue->tail_start, count = queue->at->tail_size / UNIT_SIZE;
    if (number < first) {
        Ahead *ahead = ahead_of(self, lane);
        if (!has_units(ahead, lane, queue, number, most)) {
            uint32_t revision = queue->revision;
            PyObject *found = read_units(PyTuple_GET_ITEM(lane, 1), number, most < UNITS_AHEAD ? UNITS_AHEAD : most);
            if (found == NULL) return -1;
            Py_XSETREF(ahead->lane, Py_NewRef(lane));
            Py_XSETREF(ahead->units, found);
            ahead->first = number;
            ahead->revision = revision;
        }
        from = (const uint8_t *)PyBytes_AS_STRING(ahead->units);
        first = ahead->first;
        count = PyBytes_GET_SIZE(ahead->units) / UNIT_SIZE;
    }
    count -= number - first;
    if (count > most) count = most;
    self->units.size = 0;
    if (count <= 0) return 0;
    uint8_t *to = pile_more(&self->units, count * UNIT_SIZE);
    if (to == NULL) return -1;
    memcpy(to, from + (number - first) * UNIT_SIZE, count * UNIT_SIZE);
    return 0;
}

/* The entry of a pull in what take gives, or NULL; without an error it is for the general path. */
static PyObject *take_from(Pulls *self, const Pull *pull, PyObject *lane, const Shelf *shelf) {
    Standing standing;
    Gathered found;
    const QueueEnd *queue = (QueueEnd *)PyTuple_GET_ITEM(lane, 0);
    PyObject *place = PyTuple_GET_ITEM(lane, 4);
    standing.low = queue->min_offset;
    standing.high = queue->at->end;
    if (pull->offset < standing.low || pull->offset >= standing.high) return NULL;
    if (take_units(self, lane, pull->offset, pull->most) < 0) return NULL;
    PyObject *entry = NULL;
    const uint8_t *data = self->units.data;
    if (find_records(data, self->units.size / UNIT_SIZE, pull->most_bytes, &found) && found.first >= shelf->first &&
        found.stop <= shelf->end && shelf->end - found.first <= shelf->window && found.total <= self->copied &&
        is_at_hand(self, data, &found, shelf) == 1) {
        standing.next = pull->offset + found.count;
        standing.topic_flag = PyLong_AsLongLong(PyTuple_GET_ITEM(lane, 2));
        standing.group_flag = PyLong_AsLongLong(PyTuple_GET_ITEM(lane, 3));
        PyObject *answer = answer_of(self, pull, data, &found, shelf, &standing);
        if (answer != NULL)
            entry = Py_BuildValue("(OLLLLN)", place, (long long)standing.next, (long long)found.count, (long long)found.total,
                                  (long long)(pull->flag & PULL_COMMITS ? pull->commit : -1), answer);
    }
    return entry;
}

static PyObject *take_pull(Pulls *self, const uint8_t *header, Py_ssize_t size, int is_binary, const Shelf *shelf) {
    Pull pull;
    if (!read_pull(self, header, size, is_binary, &pull)) return NULL;
    PyObject *key = pull_key(self, &pull);
    if (key == NULL) return NULL;
    PyObject *lane = PyDict_GetItemWithError(self->lanes, key); /* borrowed */
    if (lane == NULL && !PyErr_Occurred()) want_pull_lane(self, &pull, key);
    Py_DECREF(key);
    if (lane == NULL || lane == Py_None) return NULL;
    Py_INCREF(lane);
    PyObject *entry = take_from(self, &pull, lane, shelf);
    Py_DECREF(lane);
    return entry;
}
/* take(data, first, end, window, checked_from, file_size, buffer_at, gap) */
static PyObject *Pulls_take(Pulls *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 8 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "take(data, first, end, window, checked_from, file_size, buffer_at, gap)");
        return NULL;
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now); /* as time.monotonic of Python */
    Shelf shelf = {PyLong_AsLongLong(args[1]), PyLong_AsLongLong(args[2]), PyLong_AsLongLong(args[3]),
                   PyLong_AsLongLong(args[4]), PyLong_AsLongLong(args[5]), args[6], args[7], now.tv_sec + now.tv_nsec * 1e-9};
    if (PyErr_Occurred()) return NULL;
    Py_CLEAR(self->missing);
    PyObject *taken = PyList_New(0);
    if (taken == NULL) return NULL;
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(args[0]), *at = start, *end = start + PyBytes_GET_SIZE(args[0]);
    while (end - at >= PREFIX_SIZE) {
        uint32_t length = get32(at), word = get32(at + 4);
        Py_ssize_t header_size = word & 0xFFFFFF;
        /* Without a body, as all are. */
        if (length > INT32_MAX || word >> 24 > 1 || header_size + 4 != (Py_ssize_t)length || end - at - 4 < (Py_ssize_t)length) break;
        PyObject *entry = take_pull(self, at + PREFIX_SIZE, header_size, word >> 24, &shelf);
        if (entry == NULL) break;
        int is_noted = PyList_Append(taken, entry);
        Py_DECREF(entry);
        if (is_noted < 0) break;
        at += 4 + (Py_ssize_t)length;
    }
    if (PyErr_Occurred()) {
        Py_DECREF(taken);
        return NULL;
    }
    return Py_BuildValue("(nN)", (Py_ssize_t)(at - start), taken);
}

static PyObject *Pulls_add_lane(Pulls *self, PyObject *args) {
    PyObject *key, *queue, *read, *place;
    long long topic_flag, group_flag;
    if (!PyArg_ParseTuple(args, "SO!OLLO", &key, &QueueEndType, &queue, &read, &topic_flag, &group_flag, &place)) return NULL;
    PyObject *lane = Py_BuildValue("(OOLLO)", queue, read, topic_flag, group_flag, place);
    if (lane == NULL) return NULL;
    int is_set = PyDict_SetItem(self->lanes, key, lane);
    Py_DECREF(lane);
    if (is_set < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *Pulls_close_lane(Pulls *self, PyObject *key) {
    if (PyDict_SetItem(self->lanes, key, Py_None) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *Pulls_clear_lanes(Pulls *self, PyObject *Py_UNUSED(unused)) {
    PyDict_Clear(self->lanes);
    for (int n = 0; n < AHEADS; n++) forget_ahead(&self->aheads[n]);
    Py_RETURN_NONE;
}

static PyObject *Pulls_get_missing(Pulls *self, void *Py_UNUSED(unused)) {
    return Py_NewRef(self->missing == NULL ? Py_None : self->missing);
}

static PyObject *Pulls_get_lane_count(Pulls *self, void *Py_UNUSED(unused)) {
    return PyLong_FromSsize_t(PyDict_GET_SIZE(self->lanes));
}

static int Pulls_init(Pulls *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"languages", "json_parts", "binary_parts", "remark", "language", "version", "most", "most_bytes",
                            "least_bytes", "copied", "near", "warm", "warm_size", NULL};
    PyObject *languages, *json_parts, *binary_parts, *remark, *warm;
    long long most, most_bytes, least_bytes, copied, near, warm_size;
    PyTypeObject *tuple = &PyTuple_Type;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$O!O!O!SllLLLLLO!L", names, tuple, &languages, tuple, &json_parts, tuple,
                                     &binary_parts, &remark, &self->language, &self->version, &most, &most_bytes,
                                     &least_bytes, &copied, &near, &PyDict_Type, &warm, &warm_size))
        return -1;
    if (!are_bytes(languages) || !are_bytes(json_parts) || !are_bytes(binary_parts)) return -1;
    if (PyTuple_GET_SIZE(json_parts) != 10 || PyTuple_GET_SIZE(binary_parts) != 13) {
        PyErr_SetString(PyExc_ValueError, "an answer has 9 places in JSON and 12 in binary");
        return -1;
    }
    if (warm_size <= 0) {
        PyErr_SetString(PyExc_ValueError, "parts of the log have a size");
        return -1;
    }
    PyObject *lanes = PyDict_New();
    if (lanes == NULL) return -1;
    Py_XSETREF(self->lanes, lanes);
    Py_XSETREF(self->warm, Py_NewRef(warm));
    self->warm_size = warm_size;
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

static int Pulls_traverse(Pulls *self, visitproc visit, void *arg) {
    Py_VISIT(self->lanes);
    Py_VISIT(self->warm);
    for (int n = 0; n < AHEADS; n++) Py_VISIT(self->aheads[n].lane);
    return 0;
}

static int Pulls_clear(Pulls *self) {
    Py_CLEAR(self->lanes);
    Py_CLEAR(self->warm);
    for (int n = 0; n < AHEADS; n++) forget_ahead(&self->aheads[n]);
    return 0;
}

static void Pulls_dealloc(Pulls *self) {
    PyObject_GC_UnTrack(self);
    Pulls_clear(self);
    Py_XDECREF(self->languages);
    Py_XDECREF(self->json_parts);
    Py_XDECREF(self->binary_parts);
    Py_XDECREF(self->remark);
    Py_XDECREF(self->missing);
    pile_free(&self->key);
    pile_free(&self->head);
    pile_free(&self->units);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef Pulls_methods[] = {
    {"take", (PyCFunction)(void (*)(void))Pulls_take, METH_FASTCALL, "Answer the pulls that data begins with."},
    {"add_lane", (PyCFunction)Pulls_add_lane, METH_VARARGS, "Let pulls of a kind from a queue be answered."},
    {"close_lane", (PyCFunction)Pulls_close_lane, METH_O, "Leave pulls of a kind alone."},
    {"clear_lanes", (PyCFunction)Pulls_clear_lanes, METH_NOARGS, "Ask for every kind again."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef Pulls_getset[] = {
    {"missing", (getter)Pulls_get_missing, NULL, "The kind of pull whose lane the last run ended for.", NULL},
    {"lane_count", (getter)Pulls_get_lane_count, NULL, "How many kinds are known.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject PullsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.kernel._native.PullRuns",
    .tp_doc = "Answers pulls from queues that have a lane.",
    .tp_basicsize = sizeof(Pulls),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)Pulls_init,
    .tp_dealloc = (destructor)Pulls_dealloc,
    .tp_traverse = (traverseproc)Pulls_traverse,
    .tp_clear = (inquiry)Pulls_clear,
    .tp_methods = Pulls_methods,
    .tp_getset = Pulls_getset,
};

#endif
