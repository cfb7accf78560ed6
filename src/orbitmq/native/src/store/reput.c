/* Reput: dispatches records of the log to queues and index. Twin of dispatch_scanned in store/dispatch/dispatcher.py. A
 * record that is not plain ends the batch. */
#include "store/reput.h"
#include "base/results.h"
#include "broker/deferral.h"
#include "protocol/properties.h"
#include "protocol/remoting_header.h"
#include "store/append.h"
#include "store/record_check.h"
#include "store/route_table.h"

#define MAX_LEVEL_DIGITS 9

typedef struct {
    Batcher batcher;
    ByteBuffer times; /* per index key, the store timestamp of its record */
    ByteBuffer delays; /* milliseconds of each delay level from 1 on */
    PyObject *avoided; /* records with this in their properties go to more than one queue; None: there are none */
} LogReplayer;

/* Find the properties that the index needs, the last of each name. */
static void find_indexed_properties(Slice properties, ParsedProperties *parsed, Slice *delay) {
    const uint8_t *item = properties.at, *end = item + properties.size;
    memset(parsed, 0, sizeof *parsed);
    *delay = (Slice){NULL, 0};
    while (item < end) {
        const uint8_t *stop = memchr(item, 2, end - item);
        if (stop == NULL) stop = end;
        Py_ssize_t size = stop - item, name = 0;
        Slice *which = NULL;
        if (size > 5 && item[4] == 1) {
            name = 5;
            if (memcmp(item, "TAGS", 4) == 0) which = &parsed->tags;
            else if (memcmp(item, "KEYS", 4) == 0) which = &parsed->keys;
        } else if (size > 9 && item[8] == 1 && memcmp(item, "UNIQ_KEY", 8) == 0) {
            name = 9;
            which = &parsed->unique_key;
        } else if (size > 6 && item[5] == 1 && memcmp(item, "DELAY", 5) == 0) {
            name = 6;
            which = delay;
        }
        if (which != NULL) *which = (Slice){item + name, size - name};
        item = stop + 1;
    }
}

/* The same; 0 if one is not ASCII. */
static int read_indexed_properties(Slice properties, ParsedProperties *parsed, Slice *delay) {
    find_indexed_properties(properties, parsed, delay);
    return is_ascii(parsed->unique_key.at, parsed->unique_key.size) && is_ascii(parsed->keys.at, parsed->keys.size) &&
           is_ascii(parsed->tags.at, parsed->tags.size);
}

/* Units of a delay level have the delivery time instead of a tags code; 0 if it needs the Python path. */
static int read_delivery_time(const LogReplayer *self, Slice level, int64_t stored, int64_t *code) {
    int64_t number = 0, count = self->delays.size / 8, delay = 1000;
    if (level.size > MAX_LEVEL_DIGITS) return 0;
    for (Py_ssize_t n = 0; n < level.size; n++) {
        if (level.at[n] < '0' || level.at[n] > '9') return 1;
        number = number * 10 + level.at[n] - '0';
    }
    if (number == 0) return 1;
    if (number > count) number = count;
    if (number > 0) memcpy(&delay, self->delays.data + (number - 1) * 8, 8);
    return !__builtin_add_overflow(stored, delay, code);
}

static int put_record_keys(LogReplayer *self, uint32_t hash, const ParsedProperties *parsed, const RecordView *view, int64_t offset) {
    Batcher *batcher = &self->batcher;
    Py_ssize_t before = batcher->offsets.size;
    if (parsed->unique_key.at != NULL && put_key(batcher, hash, parsed->unique_key, offset) < 0) return -1;
    const uint8_t *at = parsed->keys.at, *end = at + parsed->keys.size;
    while (at < end) {
        const uint8_t *blank = memchr(at, ' ', end - at);
        if (blank == NULL) blank = end;
        if (blank > at && put_key(batcher, hash, (Slice){at, blank - at}, offset) < 0) return -1;
        at = blank + 1;
    }
    if (parsed->tags.at != NULL && put_key(batcher, hash_on(hash, (const uint8_t *)"T#", 2), parsed->tags, offset) < 0) return -1;
    Py_ssize_t size = batcher->offsets.size - before;
    uint8_t *times = size == 0 ? NULL : buffer_extend(&self->times, size);
    if (size > 0 && times == NULL) return -1;
    for (Py_ssize_t n = 0; n < size; n += 8) memcpy(times + n, &view->stored, 8);
    return 0;
}

/* 1 if the record was dispatched, 0 if it is for the Python path, -1 for an error. */
static int replay_record(LogReplayer *self, const RecordView *view, int64_t offset, int is_queued, int is_indexed) {
    Batcher *batcher = &self->batcher;
    ParsedProperties parsed;
    Slice delay;
    QueueRoute *route = find_route(batcher, view->topic.at, view->topic.size, view->queue_id, 0);
    if (!read_indexed_properties(view->properties, &parsed, &delay)) return 0;
    if (is_queued) {
        if (route == NULL) return 0;
        if (self->avoided != Py_None && memmem(view->properties.at, view->properties.size, PyBytes_AS_STRING(self->avoided),
                                               PyBytes_GET_SIZE(self->avoided)) != NULL)
            return 0;
        if (!route->is_touched) {
            int can = touch(batcher, route);
            if (can <= 0) return can;
        }
        int64_t stop = offset + view->size, code = tags_code(&parsed);
        if (stop > stop_of(route)) {
            if (view->queue_offset != next_shown(route)) return 0;
            if (slice_equals(view->topic, DEFERRAL_TOPICS[DEFER_DELAY_LEVEL]) && !read_delivery_time(self, delay, view->stored, &code))
                return 0;
            uint8_t *unit = unit_room(route);
            if (unit == NULL) return -1;
            put_unit(unit, offset, view->size, code);
            count_record(route, view->size);
        }
    }
    if (!is_indexed || !batcher->is_indexing) return 1;
    uint32_t hash;
    if (route != NULL) {
        hash = route->prefix_hash;
    } else {
        if (!is_ascii(view->topic.at, view->topic.size)) return 0;
        hash = hash_on(hash_on(0, view->topic.at, view->topic.size), (const uint8_t *)"#", 1);
    }
    return put_record_keys(self, hash, &parsed, view, offset) < 0 ? -1 : 1;
}

static PyObject *LogReplayer_replay(LogReplayer *self, PyObject *args) {
    Batcher *batcher = &self->batcher;
    Py_buffer log;
    long long position, limit, base, queued_from, indexed_from, count = 0, newest = 0, last = -1, stored = 0;
    int check_crc, taken = 1;
    if (!PyArg_ParseTuple(args, "y*LLLLLpp", &log, &position, &limit, &base, &queued_from, &indexed_from, &check_crc,
                          &batcher->has_listeners))
        return NULL;
    untouch(batcher);
    batcher->hashes.size = batcher->offsets.size = self->times.size = 0;
    while (position >= 0 && position < limit && position < log.len) {
        RecordView view;
        int64_t offset = base + position;
        if (!view_record((const uint8_t *)log.buf + position, log.len - position, offset, check_crc, &view)) break;
        taken = replay_record(self, &view, offset, offset >= queued_from, offset >= indexed_from);
        if (taken <= 0) break;
        count++;
        last = offset;
        stored = view.stored;
        if (stored) newest = stored;
        position += view.size;
    }
    PyBuffer_Release(&log);
    PyObject *queues = taken < 0 ? NULL : enter_routes(batcher, 0);
    untouch(batcher);
    if (queues == NULL) return NULL;
    return make_result(RESULT_REPLAYED, from_int(position), from_int(count), from_int(newest), from_int(last), from_int(stored), queues,
                       buffer_bytes(&batcher->hashes), buffer_bytes(&batcher->offsets), buffer_bytes(&self->times));
}

static int LogReplayer_init(LogReplayer *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"is_indexing", "delays", "avoided", NULL};
    PyObject *delays, *avoided;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$pO!O", names, &self->batcher.is_indexing, &PyTuple_Type, &delays, &avoided))
        return -1;
    if (avoided != Py_None && !PyBytes_Check(avoided)) {
        PyErr_SetString(PyExc_TypeError, "avoided is bytes or None");
        return -1;
    }
    Py_XSETREF(self->avoided, Py_NewRef(avoided));
    self->delays.size = 0;
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(delays); n++) {
        int64_t delay = PyLong_AsLongLong(PyTuple_GET_ITEM(delays, n));
        uint8_t *at = PyErr_Occurred() ? NULL : buffer_extend(&self->delays, sizeof delay);
        if (at == NULL) return -1;
        memcpy(at, &delay, sizeof delay);
    }
    return 0;
}

static void LogReplayer_dealloc(LogReplayer *self) {
    buffer_free(&self->times);
    buffer_free(&self->delays);
    Py_XDECREF(self->avoided);
    Batcher_dealloc(&self->batcher);
}

static PyMethodDef LogReplayer_methods[] = {
    {"replay", (PyCFunction)LogReplayer_replay, METH_VARARGS, "Take the plain records that follow_timer_chain each other from one cursor on."},
    {"add_route", (PyCFunction)Batcher_add_route, METH_VARARGS, "Open a route to a queue."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject LogReplayerType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.native._native.LogReplayer",
    .tp_doc = "Dispatches records of the log to queues that have a route.",
    .tp_basicsize = sizeof(LogReplayer),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)LogReplayer_init,
    .tp_dealloc = (destructor)LogReplayer_dealloc,
    .tp_traverse = (traverseproc)Batcher_traverse,
    .tp_clear = (inquiry)Batcher_clear,
    .tp_methods = LogReplayer_methods,
};
