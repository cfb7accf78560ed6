/* Sends from the bytes of a connection into the log, in one pass: the compiled twin of the general path, which is
 * broker/send.py, store/appending.py and store/dispatch.py. Both make the same bytes of the same bytes.
 *
 * Everything that is unusual ends the run in front of it: nothing here decides what somebody has to be told.
 */
#include "bytes.h"
#include "gathering.h"
#include "lanes.h"
#include "parking.h"
#include "properties.h"
#include "send_header.h"

#define ONEWAY 2
#define BORN_HOST_V6 0x10
#define STORE_HOST_V6 0x20
#define PREFIX_SIZE 8
#define SHORT_BODY 512 /* up to here a table is faster than calling the library for the CRC */

/* Answers */

static uint8_t *put_part(uint8_t *at, PyObject *parts, Py_ssize_t number) {
    PyObject *part = PyTuple_GET_ITEM(parts, number);
    return put_text(at, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part));
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

static Py_ssize_t parts_size(PyObject *parts) {
    Py_ssize_t size = 0;
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(parts); n++) size += PyBytes_GET_SIZE(PyTuple_GET_ITEM(parts, n));
    return size;
}

static uint8_t *put_sized_handle(const Runs *self, uint8_t *at, const Wish *wish, const Send *send, Text unique_key) {
    uint8_t *end = put_handle(self, at + 4, wish, send, unique_key);
    put32(at, end - at - 4);
    return end;
}

static int put_answer(Runs *self, int is_binary, const Send *send, const Wish *wish, Text unique_key, int64_t queue_offset,
                      int64_t offset) {
    int is_timed = wish->kind == TIMED;
    PyObject *parts = is_binary ? (is_timed ? self->timed_binary_parts : self->binary_parts)
                                : (is_timed ? self->timed_json_parts : self->json_parts);
    Pile *pile = &self->answers;
    Py_ssize_t before = pile->size;
    /* Six numbers of 20 digits at most, sizes and what a binary header begins with. */
    Py_ssize_t room = parts_size(parts) + unique_key.size + 200 + (is_timed ? handle_room(self, send, unique_key) : 0);
    uint8_t *start = pile_more(pile, room);
    if (start == NULL) return -1;
    uint8_t *at = start + PREFIX_SIZE;
    if (is_binary) {
        put16(at, 0);
        at[2] = self->language;
        put16(at + 3, self->version);
        put32(at + 5, send->opaque);
        put32(at + 9, 1);
        put32(at + 13, 0);
        uint8_t *fields = at + BINARY_FIXED + 4;
        at = put_hex(put_part(fields, parts, 0), offset);
        at = put_sized(put_part(at, parts, 1), send->queue_id);
        at = put_sized(put_part(at, parts, 3), queue_offset);
        at = put_part(at, parts, 5);
        put32(at, unique_key.size);
        at = put_text(at + 4, unique_key.at, unique_key.size);
        if (is_timed) at = put_sized_handle(self, put_part(at, parts, 7), wish, send, unique_key);
        at = put_part(at, parts, PyTuple_GET_SIZE(parts) - 1);
        put32(fields - 4, at - fields);
    } else {
        Py_ssize_t next = 4;
        at = put_part(at, parts, 0);
        *at++ = '0';
        at = put_decimal(put_part(at, parts, 1), send->queue_id);
        at = put_text(put_part(at, parts, 2), unique_key.at, unique_key.size);
        at = put_hex(put_part(at, parts, 3), offset);
        if (is_timed) at = put_handle(self, put_part(at, parts, next++), wish, send, unique_key);
        at = put_decimal(put_part(at, parts, next), queue_offset);
        at = put_decimal(put_part(at, parts, next + 1), send->opaque);
        at = put_part(at, parts, next + 2);
    }
    Py_ssize_t size = at - start;
    put32(start, size - 4);
    put32(start + 4, (size - PREFIX_SIZE) | (is_binary ? 1u << 24 : 0));
    pile->size = before + size;
    return 0;
}

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

/* One message: 1 if it was taken, 0 if it is for the general path, -1 for an error */

typedef struct {
    uint8_t *log;
    int64_t position, limit, base, now;
    const uint8_t *born_host;
    Py_ssize_t born_size;
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

/* Let the run end because a place has no lane, or one without the queue that it needs. */
static int want_lane(Runs *self, const char *topic, Py_ssize_t size, int64_t queue_id, int is_parking, int needs_queue) {
    PyObject *missing = Py_BuildValue("(s#LOO)", topic, size, (long long)queue_id, is_parking ? Py_True : Py_False,
                                      needs_queue ? Py_True : Py_False);
    if (missing == NULL) return -1;
    Py_XSETREF(self->missing, missing);
    return 0;
}

static int note_half(Runs *self, Lane *home) {
    if (home->halves++ == 0) {
        Py_ssize_t number = home - self->lanes;
        uint8_t *at = pile_more(&self->half_places, sizeof number);
        if (at == NULL) return -1;
        memcpy(at, &number, sizeof number);
    }
    return 0;
}

static int take_one(Runs *self, const uint8_t *header, Py_ssize_t header_size, int is_binary, const uint8_t *body,
                    Py_ssize_t body_size, Place *place) {
    Send send;
    Known known;
    Wish wish = {PLAIN, 0, 0, 0};
    if (body_size == 0 || body_size > self->max_body) return 0;
    if (!(is_binary ? read_binary(header, header + header_size, &send)
                    : read_json(header, header + header_size, self->languages, &send)))
        return 0;
    if (send.flag & ~(int64_t)ONEWAY) return 0;
    Text properties = send.properties;
    if (send.has_escapes) {
        self->text.size = 0;
        uint8_t *text = pile_more(&self->text, properties.size);
        if (text == NULL) return -1;
        Py_ssize_t size = unescape(properties, text);
        if (size < 0) return 0;
        properties = (Text){text, size};
    }
    int found = scan_properties(properties.at, properties.size, &known);
    if (found == NOT_OURS || (found == LOOK_CLOSER && !read_wish(self, properties, place->now, &wish))) return 0;
    Lane *home = find_lane(self, send.topic.at, send.topic.size, send.queue_id, 0), *lane = home;
    if (home == NULL || (wish.kind == PLAIN && home->queue == Py_None))
        return want_lane(self, (const char *)send.topic.at, send.topic.size, send.queue_id, 0, wish.kind == PLAIN);
    if (wish.kind != PLAIN) {
        const char *topic = PARKING_TOPICS[wish.kind];
        lane = find_lane(self, (const uint8_t *)topic, strlen(topic), parking_queue(&wish), 1);
        if (lane == NULL) return want_lane(self, topic, strlen(topic), parking_queue(&wish), 1, 1);
    }
    if (put_behind(self, &wish, &send, known.unique_key) < 0) return -1;
    Py_ssize_t added = PyBytes_GET_SIZE(self->added), store_size = PyBytes_GET_SIZE(self->store_host);
    Py_ssize_t properties_size = properties.size + added + self->behind.size, field_size = PyBytes_GET_SIZE(lane->field);
    int64_t size = 72 + place->born_size + store_size + body_size + field_size + 2 + properties_size;
    if (properties_size > self->max_properties || place->position + size > place->limit) return 0;
    uint32_t crc;
    if (body_crc(self, body, body_size, &crc) < 0) return -1;
    int64_t offset = place->base + place->position;
    if (!lane->is_touched) {
        int can = touch(self, lane, offset);
        if (can <= 0) return can;
    }
    uint8_t *unit = pile_more(&lane->units, UNIT_SIZE);
    if (unit == NULL) return -1;
    if (!(send.flag & ONEWAY) && put_answer(self, is_binary, &send, &wish, known.unique_key, lane->next, offset) < 0)
        return -1;
    if (self->is_indexing && put_keys(self, lane, &known, offset) < 0) return -1;
    if (wish.kind == HALF && note_half(self, home) < 0) return -1;
    int64_t code = known.tags.at != NULL ? (int32_t)hash_on(0, known.tags.at, known.tags.size) : 0;
    if (wish.kind == DELAYED) code = place->now + wish.delay;
    uint32_t flags = (uint32_t)(send.sys_flag & self->kept_flags) & ~(uint32_t)(BORN_HOST_V6 | STORE_HOST_V6);
    if (place->born_size == 20) flags |= BORN_HOST_V6;
    if (store_size == 20) flags |= STORE_HOST_V6;
    uint8_t *at = place->log + place->position;
    put32(at, size);
    put32(at + 4, lane->magic);
    put32(at + 8, crc);
    put32(at + 12, lane->queue_id);
    put32(at + 16, send.message_flag);
    put64(at + 20, lane->next);
    put64(at + 28, offset);
    put32(at + 36, flags);
    put64(at + 40, send.born);
    at = put_text(at + 48, place->born_host, place->born_size);
    put64(at, place->now);
    at = put_text(at + 8, PyBytes_AS_STRING(self->store_host), store_size);
    put32(at, send.reconsumed);
    put64(at + 4, 0);
    put32(at + 12, body_size);
    at = put_text(at + 16, body, body_size);
    at = put_text(at, PyBytes_AS_STRING(lane->field), field_size);
    put16(at, properties_size);
    at = put_text(at + 2, properties.at, properties.size);
    at = put_text(at, PyBytes_AS_STRING(self->added), added);
    put_text(at, self->behind.data, self->behind.size);
    put64(unit, offset);
    put32(unit + 8, size);
    put64(unit + 12, code);
    lane->next++;
    lane->bytes += size;
    lane->code = code;
    place->position += size;
    lane->stop = place->base + place->position;
    place->last_offset = offset;
    return 1;
}

static PyObject *lane_runs(Runs *self) {
    PyObject *runs = PyList_New(self->touched_count);
    if (runs == NULL) return NULL;
    for (Py_ssize_t n = 0; n < self->touched_count; n++) {
        Lane *lane = &self->lanes[self->touched[n]];
        PyObject *run = Py_BuildValue("(OOLLy#LLL)", lane->queue, lane->topic, (long long)lane->queue_id,
                                      (long long)lane->first, (char *)lane->units.data, lane->units.size,
                                      (long long)lane->stop, (long long)lane->code, (long long)lane->bytes);
        if (run == NULL) { Py_DECREF(runs); return NULL; }
        PyList_SET_ITEM(runs, n, run);
    }
    return runs;
}

/* Topics and how many half messages each got, which are forgotten. */
static PyObject *take_halves(Runs *self) {
    Py_ssize_t count = self->half_places.size / sizeof(Py_ssize_t), number;
    PyObject *halves = PyList_New(count);
    for (Py_ssize_t n = 0; n < count; n++) {
        memcpy(&number, self->half_places.data + n * sizeof number, sizeof number);
        Lane *home = &self->lanes[number];
        PyObject *pair = halves == NULL ? NULL : Py_BuildValue("(OL)", home->topic, (long long)home->halves);
        home->halves = 0;
        if (pair == NULL) Py_CLEAR(halves);
        else PyList_SET_ITEM(halves, n, pair);
    }
    self->half_places.size = 0;
    return halves;
}

static PyObject *Runs_take(Runs *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 7) {
        PyErr_SetString(PyExc_TypeError, "take(data, log, position, limit, base, now, born_host)");
        return NULL;
    }
    Place place = {0};
    place.position = PyLong_AsLongLong(args[2]);
    place.limit = PyLong_AsLongLong(args[3]);
    place.base = PyLong_AsLongLong(args[4]);
    place.now = PyLong_AsLongLong(args[5]);
    if (PyErr_Occurred()) return NULL;
    if (!PyBytes_Check(args[0]) || !PyBytes_Check(args[6])) {
        PyErr_SetString(PyExc_TypeError, "data and born_host are bytes");
        return NULL;
    }
    place.born_host = (uint8_t *)PyBytes_AS_STRING(args[6]);
    place.born_size = PyBytes_GET_SIZE(args[6]);
    if (place.born_size != 8 && place.born_size != 20) {
        PyErr_SetString(PyExc_ValueError, "an address and port have 8 or 20 bytes");
        return NULL;
    }
    Py_buffer log;
    if (PyObject_GetBuffer(args[1], &log, PyBUF_WRITABLE) < 0) return NULL;
    place.log = log.buf;
    if (place.limit > log.len) place.limit = log.len;
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(args[0]), *at = start, *end = start + PyBytes_GET_SIZE(args[0]);
    self->answers.size = self->hashes.size = self->offsets.size = 0;
    untouch(self);
    Py_CLEAR(self->missing);
    long long messages = 0;
    int taken = 1;
    while (end - at >= PREFIX_SIZE) {
        uint32_t length = get32(at), word = get32(at + 4);
        Py_ssize_t header_size = word & 0xFFFFFF;
        if (length > INT32_MAX || header_size + 4 > (Py_ssize_t)length || word >> 24 > 1 || end - at - 4 < (Py_ssize_t)length) break;
        const uint8_t *body = at + PREFIX_SIZE + header_size;
        taken = take_one(self, at + PREFIX_SIZE, header_size, word >> 24, body, at + 4 + length - body, &place);
        if (taken != 1) break;
        at += 4 + (Py_ssize_t)length;
        messages++;
    }
    PyBuffer_Release(&log);
    PyObject *result = NULL, *halves = take_halves(self);
    if (taken >= 0 && halves != NULL) {
        PyObject *runs = lane_runs(self);
        if (runs != NULL)
            result = Py_BuildValue("(nLLNNNNLO)", (Py_ssize_t)(at - start), messages, (long long)place.position,
                                   pile_bytes(&self->answers), runs, pile_bytes(&self->hashes),
                                   pile_bytes(&self->offsets), (long long)place.last_offset, halves);
    }
    Py_XDECREF(halves);
    untouch(self);
    return result;
}

/* The type */

static int Runs_init(Runs *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"languages", "json_parts", "binary_parts", "timed_json_parts", "timed_binary_parts", "language",
                            "version", "added", "store_host", "kept_flags", "max_body", "max_properties", "is_indexing",
                            "crc32", "broker_name", "precision", "longest", "delays", NULL};
    PyObject *languages, *json_parts, *binary_parts, *timed_json_parts, *timed_binary_parts, *added, *store_host, *crc32;
    PyObject *broker_name, *delays;
    long long kept_flags, precision, longest;
    PyTypeObject *tuple = &PyTuple_Type;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$O!O!O!O!O!llSSLnnpOSLLO!", names, tuple, &languages, tuple,
                                     &json_parts, tuple, &binary_parts, tuple, &timed_json_parts, tuple,
                                     &timed_binary_parts, &self->language, &self->version, &added, &store_host,
                                     &kept_flags, &self->max_body, &self->max_properties, &self->is_indexing, &crc32,
                                     &broker_name, &precision, &longest, tuple, &delays))
        return -1;
    PyObject *all[] = {languages, json_parts, binary_parts, timed_json_parts, timed_binary_parts};
    for (int n = 0; n < 5; n++)
        for (Py_ssize_t at = 0; at < PyTuple_GET_SIZE(all[n]); at++)
            if (!PyBytes_Check(PyTuple_GET_ITEM(all[n], at))) {
                PyErr_SetString(PyExc_TypeError, "languages and parts are bytes");
                return -1;
            }
    if (PyTuple_GET_SIZE(json_parts) != 7 || PyTuple_GET_SIZE(binary_parts) != 8 ||
        PyTuple_GET_SIZE(timed_json_parts) != 8 || PyTuple_GET_SIZE(timed_binary_parts) != 10) {
        PyErr_SetString(PyExc_ValueError, "an answer has 6 places in JSON and 7 in binary, with a handle 7 and 9");
        return -1;
    }
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(delays); n++)
        if (PyLong_AsLongLong(PyTuple_GET_ITEM(delays, n)) == -1 && PyErr_Occurred()) return -1;
    /* One more than the longest number of milliseconds in 18 digits times 1,000 would not fit. */
    if (precision <= 0 || longest > INT64_MAX / 4000) {
        PyErr_SetString(PyExc_ValueError, "precision and the longest delay are numbers of milliseconds");
        return -1;
    }
    Py_XSETREF(self->languages, Py_NewRef(languages));
    Py_XSETREF(self->json_parts, Py_NewRef(json_parts));
    Py_XSETREF(self->binary_parts, Py_NewRef(binary_parts));
    Py_XSETREF(self->timed_json_parts, Py_NewRef(timed_json_parts));
    Py_XSETREF(self->timed_binary_parts, Py_NewRef(timed_binary_parts));
    Py_XSETREF(self->broker_name, Py_NewRef(broker_name));
    Py_XSETREF(self->delays, Py_NewRef(delays));
    Py_XSETREF(self->added, Py_NewRef(added));
    Py_XSETREF(self->store_host, Py_NewRef(store_host));
    Py_XSETREF(self->crc32, Py_NewRef(crc32));
    self->kept_flags = kept_flags;
    self->precision = precision;
    self->longest = longest;
    return 0;
}

static int Runs_traverse(Runs *self, visitproc visit, void *arg) {
    for (Py_ssize_t at = 0; at < self->lane_room; at++) Py_VISIT(self->lanes[at].queue);
    Py_VISIT(self->crc32);
    return 0;
}

static int Runs_clear(Runs *self) {
    drop_lanes(self);
    Py_CLEAR(self->crc32);
    return 0;
}

static void Runs_dealloc(Runs *self) {
    PyObject_GC_UnTrack(self);
    Runs_clear(self);
    Py_XDECREF(self->languages);
    Py_XDECREF(self->json_parts);
    Py_XDECREF(self->binary_parts);
    Py_XDECREF(self->timed_json_parts);
    Py_XDECREF(self->timed_binary_parts);
    Py_XDECREF(self->broker_name);
    Py_XDECREF(self->delays);
    Py_XDECREF(self->added);
    Py_XDECREF(self->store_host);
    Py_XDECREF(self->missing);
    pile_free(&self->answers);
    pile_free(&self->hashes);
    pile_free(&self->offsets);
    pile_free(&self->text);
    pile_free(&self->behind);
    pile_free(&self->half_places);
    PyMem_Free(self->touched);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *Runs_get_missing(Runs *self, void *Py_UNUSED(unused)) {
    return Py_NewRef(self->missing == NULL ? Py_None : self->missing);
}

static PyMethodDef Runs_methods[] = {
    {"take", (PyCFunction)(void (*)(void))Runs_take, METH_FASTCALL, "Store the sends that data begins with."},
    {"add_lane", (PyCFunction)Runs_add_lane, METH_VARARGS, "Let sends to a queue be stored."},
    {"clear_lanes", (PyCFunction)Runs_clear_lanes, METH_NOARGS, "Let none be stored any more."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef Runs_getset[] = {
    {"missing", (getter)Runs_get_missing, NULL, "The place whose lane the last run ended for.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject RunsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.kernel._native.SendRuns",
    .tp_doc = "Stores sends to queues that have a lane.",
    .tp_basicsize = sizeof(Runs),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)Runs_init,
    .tp_dealloc = (destructor)Runs_dealloc,
    .tp_traverse = (traverseproc)Runs_traverse,
    .tp_clear = (inquiry)Runs_clear,
    .tp_methods = Runs_methods,
    .tp_getset = Runs_getset,
};

static PyMethodDef functions[] = {
    {"gather", (PyCFunction)(void (*)(void))gather, METH_FASTCALL, "The compiled twin of orbitmq.kernel.gathering.gather."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_native", .m_doc = "Messages into the log and out of it, compiled.", .m_size = -1,
    .m_methods = functions};

PyMODINIT_FUNC PyInit__native(void) {
    make_crc_table();
    name_next_offset = PyUnicode_InternFromString("next_offset");
    name_end = PyUnicode_InternFromString("end");
    name_max_physical = PyUnicode_InternFromString("max_physical");
    if (name_next_offset == NULL || name_end == NULL || name_max_physical == NULL || PyType_Ready(&RunsType) < 0) return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made == NULL) return NULL;
    if (PyModule_AddObjectRef(made, "SendRuns", (PyObject *)&RunsType) < 0) { Py_DECREF(made); return NULL; }
    return made;
}
