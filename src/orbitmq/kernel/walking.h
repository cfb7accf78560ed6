/* Records of the log into queues and index, from one place on: the compiled twin of dispatch_seen in
 * store/dispatch.py. What is not plain ends the run in front of it.
 */
#ifndef ORBITMQ_WALKING_H
#define ORBITMQ_WALKING_H
#include "seeing.h"
#include "storing.h"

#define MOST_LEVEL_DIGITS 9

typedef struct {
    Runs runs;
    Pile times; /* of each key in the index, when its record was stored */
    Pile delays; /* milliseconds of each delay level from 1 on */
    PyObject *avoided; /* records with this in their properties go to more than one queue; None: there are none */
} Walks;

/* Values that have one, the last of each name; 0 if one has other characters than ASCII. */
static int read_known(Text properties, Known *known, Text *delay) {
    const uint8_t *item = properties.at, *end = item + properties.size;
    memset(known, 0, sizeof *known);
    *delay = (Text){NULL, 0};
    while (item < end) {
        const uint8_t *stop = memchr(item, 2, end - item);
        if (stop == NULL) stop = end;
        Py_ssize_t size = stop - item, name = 0;
        Text *which = NULL;
        if (size > 5 && item[4] == 1) {
            name = 5;
            if (memcmp(item, "TAGS", 4) == 0) which = &known->tags;
            else if (memcmp(item, "KEYS", 4) == 0) which = &known->keys;
        } else if (size > 9 && item[8] == 1 && memcmp(item, "UNIQ_KEY", 8) == 0) {
            name = 9;
            which = &known->unique_key;
        } else if (size > 6 && item[5] == 1 && memcmp(item, "DELAY", 5) == 0) {
            name = 6;
            which = delay;
        }
        if (which != NULL) *which = (Text){item + name, size - name};
        item = stop + 1;
    }
    return is_ascii(known->unique_key.at, known->unique_key.size) && is_ascii(known->keys.at, known->keys.size) &&
           is_ascii(known->tags.at, known->tags.size);
}

/* Those that wait for a delay have the time at which it is over in their units; 0 if it is not for here to say. */
static int read_delivery_time(const Walks *self, Text level, int64_t stored, int64_t *code) {
    int64_t number = 0, count = self->delays.size / 8, delay = 1000;
    if (level.size > MOST_LEVEL_DIGITS) return 0;
    for (Py_ssize_t n = 0; n < level.size; n++) {
        if (level.at[n] < '0' || level.at[n] > '9') return 1;
        number = number * 10 + level.at[n] - '0';
    }
    if (number == 0) return 1;
    if (number > count) number = count;
    if (number > 0) memcpy(&delay, self->delays.data + (number - 1) * 8, 8);
    *code = stored + delay;
    return 1;
}

static int put_seen_keys(Walks *self, uint32_t hash, const Known *known, const Seen *seen, int64_t offset) {
    Runs *runs = &self->runs;
    Py_ssize_t before = runs->offsets.size;
    if (known->unique_key.at != NULL && put_key(runs, hash, known->unique_key, offset) < 0) return -1;
    const uint8_t *at = known->keys.at, *end = at + known->keys.size;
    while (at < end) {
        const uint8_t *blank = memchr(at, ' ', end - at);
        if (blank == NULL) blank = end;
        if (blank > at && put_key(runs, hash, (Text){at, blank - at}, offset) < 0) return -1;
        at = blank + 1;
    }
    if (known->tags.at != NULL && put_key(runs, hash_on(hash, (const uint8_t *)"T#", 2), known->tags, offset) < 0) return -1;
    Py_ssize_t size = runs->offsets.size - before;
    uint8_t *times = size == 0 ? NULL : pile_more(&self->times, size);
    if (size > 0 && times == NULL) return -1;
    for (Py_ssize_t n = 0; n < size; n += 8) memcpy(times + n, &seen->stored, 8);
    return 0;
}

/* 1 if the record was taken, 0 if it is for others, -1 for an error. */
static int take_seen(Walks *self, const Seen *seen, int64_t offset, int is_queued, int is_indexed) {
    Runs *runs = &self->runs;
    Known known;
    Text delay;
    Lane *lane = find_lane(runs, seen->topic.at, seen->topic.size, seen->queue_id, 0);
    if (!read_known(seen->properties, &known, &delay)) return 0;
    if (is_queued) {
        if (lane == NULL) return 0;
        if (self->avoided != Py_None && memmem(seen->properties.at, seen->properties.size, PyBytes_AS_STRING(self->avoided),
                                               PyBytes_GET_SIZE(self->avoided)) != NULL)
            return 0;
        if (!lane->is_touched) {
            int can = touch(runs, lane);
            if (can <= 0) return can;
        }
        int64_t stop = offset + seen->size, code = tags_code(&known);
        if (stop > stop_of(lane)) {
            if (seen->queue_offset != next_shown(lane)) return 0;
            if (is_text(seen->topic, PARKING_TOPICS[DELAYED]) && !read_delivery_time(self, delay, seen->stored, &code))
                return 0;
            uint8_t *unit = unit_room(lane);
            if (unit == NULL) return -1;
            put_unit(unit, offset, seen->size, code);
            count_record(lane, seen->size);
        }
    }
    if (!is_indexed || !runs->is_indexing) return 1;
    uint32_t hash;
    if (lane != NULL) {
        hash = lane->prefix_hash;
    } else {
        if (!is_ascii(seen->topic.at, seen->topic.size)) return 0;
        hash = hash_on(hash_on(0, seen->topic.at, seen->topic.size), (const uint8_t *)"#", 1);
    }
    return put_seen_keys(self, hash, &known, seen, offset) < 0 ? -1 : 1;
}

static PyObject *Walks_take(Walks *self, PyObject *args) {
    Runs *runs = &self->runs;
    Py_buffer log;
    long long position, limit, base, queued_from, indexed_from, count = 0, newest = 0, last = -1, stored = 0;
    int check_crc, taken = 1;
    if (!PyArg_ParseTuple(args, "y*LLLLLpp", &log, &position, &limit, &base, &queued_from, &indexed_from, &check_crc,
                          &runs->is_heard))
        return NULL;
    untouch(runs);
    runs->hashes.size = runs->offsets.size = self->times.size = 0;
    while (position >= 0 && position < limit && position < log.len) {
        Seen seen;
        int64_t offset = base + position;
        if (!see((const uint8_t *)log.buf + position, log.len - position, offset, check_crc, &seen)) break;
        taken = take_seen(self, &seen, offset, offset >= queued_from, offset >= indexed_from);
        if (taken <= 0) break;
        count++;
        last = offset;
        stored = seen.stored;
        if (stored) newest = stored;
        position += seen.size;
    }
    PyBuffer_Release(&log);
    PyObject *queues = taken < 0 ? NULL : enter_lanes(runs, 0);
    untouch(runs);
    if (queues == NULL) return NULL;
    return Py_BuildValue("(LLLLLNNNN)", position, count, newest, last, stored, queues, pile_bytes(&runs->hashes),
                         pile_bytes(&runs->offsets), pile_bytes(&self->times));
}

static int Walks_init(Walks *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"is_indexing", "delays", "avoided", NULL};
    PyObject *delays, *avoided;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$pO!O", names, &self->runs.is_indexing, &PyTuple_Type, &delays, &avoided))
        return -1;
    if (avoided != Py_None && !PyBytes_Check(avoided)) {
        PyErr_SetString(PyExc_TypeError, "what is avoided is bytes");
        return -1;
    }
    Py_XSETREF(self->avoided, Py_NewRef(avoided));
    self->delays.size = 0;
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(delays); n++) {
        int64_t delay = PyLong_AsLongLong(PyTuple_GET_ITEM(delays, n));
        uint8_t *at = PyErr_Occurred() ? NULL : pile_more(&self->delays, sizeof delay);
        if (at == NULL) return -1;
        memcpy(at, &delay, sizeof delay);
    }
    return 0;
}

static void Walks_dealloc(Walks *self) {
    pile_free(&self->times);
    pile_free(&self->delays);
    Py_XDECREF(self->avoided);
    Runs_dealloc(&self->runs);
}

static PyMethodDef Walks_methods[] = {
    {"take", (PyCFunction)Walks_take, METH_VARARGS, "Take the plain records that follow each other from one place on."},
    {"add_lane", (PyCFunction)Runs_add_lane, METH_VARARGS, "Let records of a queue be taken."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject WalksType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.kernel._native.LogRuns",
    .tp_doc = "Takes records of the log that belong to queues that have a lane.",
    .tp_basicsize = sizeof(Walks),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)Walks_init,
    .tp_dealloc = (destructor)Walks_dealloc,
    .tp_traverse = (traverseproc)Runs_traverse,
    .tp_clear = (inquiry)Runs_clear,
    .tp_methods = Walks_methods,
};

#endif
