/* Sends from the bytes of a connection into the log, in one pass: the compiled twin of the general path, which is
 * broker/send.py, store/appending.py and store/dispatch.py. Both make the same bytes of the same bytes.
 *
 * Everything that is unusual ends the run in front of it: nothing here decides what somebody has to be told.
 */
#include "bytes.h"
#include "acknowledging.h"
#include "batches.h"
#include "delivering.h"
#include "ends.h"
#include "gathering.h"
#include "index_checking.h"
#include "indexing.h"
#include "lanes.h"
#include "parking.h"
#include "properties.h"
#include "pulling.h"
#include "send_header.h"
#include "storing.h"

/* Answers */

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
        uint8_t *fields = put_binary_head(self, at, send->opaque);
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
    pile->size = before + end_frame(start, at, is_binary);
    return 0;
}

/* Messages, each: 1 if it was taken, 0 if it is for the general path, -1 for an error. A group of them is read before the
 * first is stored: what their queues need comes from memory meanwhile. */

#define GROUP 16
/* Properties have 32,767 bytes at most, and an escape is six times as long as what it stands for. */
#define LONGEST_HEADER (256 * 1024)

static int note_half(Runs *self, Lane *home) {
    if (home->halves++ == 0) {
        Py_ssize_t number = home - self->lanes;
        uint8_t *at = pile_more(&self->half_places, sizeof number);
        if (at == NULL) return -1;
        memcpy(at, &number, sizeof number);
    }
    return 0;
}

/* A send that was read and is not stored yet. */
typedef struct {
    Send send;
    Text properties, body;
    Known known;
    Lane *home;
    const uint8_t *end; /* of its frame */
    int found, is_binary;
} Waiting;

/* Read the send of a frame. The room for what has escapes is there. */
static int read_one(Runs *self, const uint8_t *header, Py_ssize_t header_size, int is_binary, Text body, Waiting *waiting) {
    Request request;
    Send *send = &waiting->send;
    if (body.size == 0 || body.size > self->max_body) return 0;
    if (!(is_binary ? read_binary(header, header + header_size, which_of_send, &request)
                    : read_json(header, header + header_size, self->languages, which_of_send, &request)))
        return 0;
    if (!read_send(&request, send) || send->flag & ~(int64_t)ONEWAY) return 0;
    Text properties = send->properties;
    if (send->has_escapes) {
        uint8_t *text = self->text.data + self->text.size;
        Py_ssize_t size = unescape(properties, text);
        if (size < 0) return 0;
        self->text.size += size;
        properties = (Text){text, size};
    }
    waiting->properties = properties;
    waiting->body = body;
    waiting->is_binary = is_binary;
    waiting->found = send->is_batch ? 0 : scan_properties(properties.at, properties.size, &waiting->known);
    return send->is_batch || waiting->found != NOT_OURS;
}

static int take_one(Runs *self, const Waiting *waiting, Text born_host, Place *place) {
    const Send *send = &waiting->send;
    Wish wish = {PLAIN, 0, 0, 0};
    Record record;
    if (send->is_batch)
        return take_batch(self, send, waiting->properties, waiting->body, born_host, waiting->is_binary, place);
    if (waiting->found == LOOK_CLOSER && !read_wish(self, waiting->properties, place->now, &wish)) return 0;
    const Known *known = &waiting->known;
    Lane *home = waiting->home, *lane = home;
    if (home == NULL || (wish.kind == PLAIN && home->queue == Py_None))
        return want_lane(self, (const char *)send->topic.at, send->topic.size, send->queue_id, 0, wish.kind == PLAIN);
    if (wish.kind != PLAIN) {
        const char *topic = PARKING_TOPICS[wish.kind];
        lane = find_lane(self, (const uint8_t *)topic, strlen(topic), parking_queue(&wish), 1);
        if (lane == NULL) return want_lane(self, topic, strlen(topic), parking_queue(&wish), 1, 1);
    }
    if (put_behind(self, &wish, send, known->unique_key) < 0) return -1;
    record.known = *known;
    record.flag = send->message_flag;
    record.sys_flag = send->sys_flag & self->kept_flags;
    record.born = send->born;
    record.born_host = born_host;
    record.body = waiting->body;
    record.reconsumed = send->reconsumed;
    record.properties[0] = waiting->properties;
    record.properties[1] = (Text){(uint8_t *)PyBytes_AS_STRING(self->added), PyBytes_GET_SIZE(self->added)};
    record.properties[2] = (Text){self->behind.data, self->behind.size};
    record.code = wish.kind == DELAYED ? place->now + wish.delay : tags_code(known);
    int stored = store(self, lane, &record, place);
    if (stored <= 0) return stored;
    if (wish.kind == HALF && note_half(self, home) < 0) return -1;
    if (send->flag & ONEWAY) return 1;
    return put_answer(self, waiting->is_binary, send, &wish, known->unique_key, lane->next - 1, place->last_offset) < 0 ? -1 : 1;
}

typedef struct { const uint8_t *header, *body, *end; int is_binary; } Frame;

/* The frames that some bytes begin with, up to a whole group. */
static int find_frames(const uint8_t *at, const uint8_t *end, Frame *frames) {
    int count = 0;
    while (count < GROUP && end - at >= PREFIX_SIZE) {
        uint32_t length = get32(at), word = get32(at + 4);
        Py_ssize_t header_size = word & 0xFFFFFF;
        if (length > INT32_MAX || header_size + 4 > (Py_ssize_t)length || header_size > LONGEST_HEADER || word >> 24 > 1 ||
            end - at - 4 < (Py_ssize_t)length)
            break;
        const uint8_t *header = at + PREFIX_SIZE;
        at += 4 + (Py_ssize_t)length;
        frames[count++] = (Frame){header, header + header_size, at, word >> 24};
    }
    return count;
}

/* Read the sends that some bytes begin with, up to a whole group; how many there are, or -1 for an error. */
static int read_group(Runs *self, const uint8_t *at, const uint8_t *end, Waiting *group) {
    Frame frames[GROUP];
    int all = find_frames(at, end, frames), count = 0;
    Py_ssize_t header_sizes = 1; /* so that there is some room */
    for (int n = 0; n < all; n++) header_sizes += frames[n].body - frames[n].header;
    self->text.size = 0;
    if (pile_more(&self->text, header_sizes) == NULL) return -1;
    self->text.size = 0;
    while (count < all) {
        const Frame *frame = &frames[count];
        if (!read_one(self, frame->header, frame->body - frame->header, frame->is_binary,
                      (Text){frame->body, frame->end - frame->body}, &group[count]))
            break;
        expect_lane(self, group[count].send.topic.at, group[count].send.topic.size, group[count].send.queue_id);
        group[count++].end = frame->end;
    }
    for (int n = 0; n < count; n++) {
        const Send *send = &group[n].send;
        group[n].home = find_lane(self, send->topic.at, send->topic.size, send->queue_id, 0);
        if (group[n].home != NULL) expect_queue(group[n].home);
    }
    return count;
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

/* Take the sends that some bytes begin with; -1 for an error, else what take_one said last. */
static int take_from_bytes(Runs *self, PyObject *data, PyObject *born_host, Place *place, Py_ssize_t *size, long long *messages) {
    if (!PyBytes_Check(data) || !PyBytes_Check(born_host)) {
        PyErr_SetString(PyExc_TypeError, "data and born_host are bytes");
        return -1;
    }
    Text host = {(uint8_t *)PyBytes_AS_STRING(born_host), PyBytes_GET_SIZE(born_host)};
    if (host.size != 8 && host.size != 20) {
        PyErr_SetString(PyExc_ValueError, "an address and port have 8 or 20 bytes");
        return -1;
    }
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(data), *at = start, *end = start + PyBytes_GET_SIZE(data);
    Waiting group[GROUP];
    int count = GROUP, taken = 1;
    *messages = 0;
    while (taken == 1 && count == GROUP) {
        count = read_group(self, at, end, group);
        if (count < 0) return -1;
        for (int n = 0; n < count; n++) {
            taken = take_one(self, &group[n], host, place);
            if (taken != 1) break;
            at = group[n].end;
            ++*messages;
        }
    }
    *size = at - start;
    return taken;
}

/* What the store is told of a run of sends: position, what came to queues, keys for the index, the last record, halves. */
static PyObject *stored_result(Runs *self, const Place *place, PyObject *halves) {
    PyObject *entered = enter_lanes(self, 1);
    if (entered == NULL) return NULL;
    return Py_BuildValue("(LNNNLO)", (long long)place->position, entered, pile_bytes(&self->hashes),
                         pile_bytes(&self->offsets), (long long)place->last_offset, halves);
}

/* take(received, log, position, limit, base, now, is_heard)
 *
 * What was received is a list of bytes, each with the address that it came from. Of each the sends are taken that it
 * begins with. Returns for each how many bytes these have, how many they are, and their answers; and what is stored.
 */
static PyObject *Runs_take(Runs *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 7 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "take(received, log, position, limit, base, now, is_heard)");
        return NULL;
    }
    Place place = {0};
    Py_buffer log;
    if (begin_run(self, args + 1, &log, &place) < 0) return NULL;
    PyObject *received = args[0], *result = NULL, *pieces = PyList_New(PyList_GET_SIZE(received));
    int taken = pieces == NULL ? -1 : 1;
    for (Py_ssize_t n = 0; taken >= 0 && n < PyList_GET_SIZE(pieces); n++) {
        PyObject *one = PyList_GET_ITEM(received, n);
        Py_ssize_t size = 0;
        long long messages = 0;
        self->answers.size = 0;
        if (!PyTuple_Check(one) || PyTuple_GET_SIZE(one) != 2) {
            PyErr_SetString(PyExc_TypeError, "what was received is bytes, with the address that they came from");
            taken = -1;
            break;
        }
        taken = take_from_bytes(self, PyTuple_GET_ITEM(one, 0), PyTuple_GET_ITEM(one, 1), &place, &size, &messages);
        PyObject *piece = taken < 0 ? NULL : Py_BuildValue("(nLN)", size, messages, pile_bytes(&self->answers));
        if (piece == NULL) taken = -1;
        else PyList_SET_ITEM(pieces, n, piece);
    }
    PyBuffer_Release(&log);
    PyObject *halves = take_halves(self);
    PyObject *stored = taken < 0 || halves == NULL ? NULL : stored_result(self, &place, halves);
    if (stored != NULL) result = Py_BuildValue("(ON)", pieces, stored);
    Py_XDECREF(halves);
    Py_XDECREF(pieces);
    untouch(self);
    return result;
}

/* The type */

/* Address and port as they stand in message ids. */
static PyObject *hex_text(PyObject *host) {
    Py_ssize_t size = PyBytes_GET_SIZE(host);
    PyObject *text = PyBytes_FromStringAndSize(NULL, 2 * size);
    for (Py_ssize_t n = 0; text != NULL && n < size; n++) {
        uint8_t byte = PyBytes_AS_STRING(host)[n];
        PyBytes_AS_STRING(text)[2 * n] = "0123456789ABCDEF"[byte >> 4];
        PyBytes_AS_STRING(text)[2 * n + 1] = "0123456789ABCDEF"[byte & 15];
    }
    return text;
}

static int Runs_init(Runs *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"languages", "json_parts", "binary_parts", "timed_json_parts", "timed_binary_parts", "language",
                            "version", "added", "store_host", "kept_flags", "max_body", "max_properties", "is_indexing",
                            "crc32", "broker_name", "precision", "longest", "delays", "batch_json", "batch_binary", NULL};
    PyObject *languages, *json_parts, *binary_parts, *timed_json_parts, *timed_binary_parts, *added, *store_host, *crc32;
    PyObject *broker_name, *delays, *batch_json, *batch_binary;
    long long kept_flags, precision, longest;
    PyTypeObject *tuple = &PyTuple_Type;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$O!O!O!O!O!llSSLnnpOSLLO!O!S", names, tuple, &languages, tuple,
                                     &json_parts, tuple, &binary_parts, tuple, &timed_json_parts, tuple,
                                     &timed_binary_parts, &self->language, &self->version, &added, &store_host,
                                     &kept_flags, &self->max_body, &self->max_properties, &self->is_indexing, &crc32,
                                     &broker_name, &precision, &longest, tuple, &delays, tuple, &batch_json, &batch_binary))
        return -1;
    if (!are_bytes(languages) || !are_bytes(json_parts) || !are_bytes(binary_parts) || !are_bytes(timed_json_parts) ||
        !are_bytes(timed_binary_parts) || !are_bytes(batch_json))
        return -1;
    if (PyTuple_GET_SIZE(json_parts) != 7 || PyTuple_GET_SIZE(binary_parts) != 8 ||
        PyTuple_GET_SIZE(timed_json_parts) != 8 || PyTuple_GET_SIZE(timed_binary_parts) != 10 ||
        PyTuple_GET_SIZE(batch_json) != 3) {
        PyErr_SetString(PyExc_ValueError,
                        "an answer has 6 places in JSON and 7 in binary, with a handle 7 and 9, and that to a batch 2");
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
    PyObject *host_text = hex_text(store_host);
    if (host_text == NULL) return -1;
    Py_XSETREF(self->host_text, host_text);
    Py_XSETREF(self->batch_json, Py_NewRef(batch_json));
    Py_XSETREF(self->batch_binary, Py_NewRef(batch_binary));
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
    Py_XDECREF(self->revive_topic);
    Py_XDECREF(self->batch_json);
    Py_XDECREF(self->batch_binary);
    Py_XDECREF(self->host_text);
    Py_XDECREF(self->added);
    Py_XDECREF(self->store_host);
    Py_XDECREF(self->missing);
    pile_free(&self->answers);
    pile_free(&self->hashes);
    pile_free(&self->offsets);
    pile_free(&self->text);
    pile_free(&self->behind);
    pile_free(&self->half_places);
    pile_free(&self->settled);
    pile_free(&self->items);
    PyMem_Free(self->touched);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *Runs_get_missing(Runs *self, void *Py_UNUSED(unused)) {
    return Py_NewRef(self->missing == NULL ? Py_None : self->missing);
}

static PyMethodDef Runs_methods[] = {
    {"take", (PyCFunction)(void (*)(void))Runs_take, METH_FASTCALL, "Store the sends that what was received begins with."},
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

/* The other types, which have less to know */

#include "walking.h"

static int Acks_init(Runs *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"languages", "json_parts", "store_host", "max_body", "max_properties", "is_indexing", "crc32",
                            "revive_topic", "revive_queues", "precision", "longest", NULL};
    PyObject *languages, *json_parts, *store_host, *crc32, *revive_topic;
    long long revive_queues, precision, longest;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$O!O!SnnpOSLLL", names, &PyTuple_Type, &languages, &PyTuple_Type,
                                     &json_parts, &store_host, &self->max_body, &self->max_properties,
                                     &self->is_indexing, &crc32, &revive_topic, &revive_queues, &precision, &longest))
        return -1;
    if (!are_bytes(languages) || !are_bytes(json_parts)) return -1;
    if (PyTuple_GET_SIZE(json_parts) != 2 || precision <= 0) {
        PyErr_SetString(PyExc_ValueError, "an answer has one place, and precision is a number of milliseconds");
        return -1;
    }
    Py_XSETREF(self->languages, Py_NewRef(languages));
    Py_XSETREF(self->json_parts, Py_NewRef(json_parts));
    Py_XSETREF(self->store_host, Py_NewRef(store_host));
    Py_XSETREF(self->crc32, Py_NewRef(crc32));
    Py_XSETREF(self->revive_topic, Py_NewRef(revive_topic));
    self->revive_queues = revive_queues;
    self->precision = precision;
    self->longest = longest;
    return 0;
}

static PyMethodDef Acks_methods[] = {
    {"take", (PyCFunction)(void (*)(void))Acks_take, METH_FASTCALL, "Store the acknowledgements that data begins with."},
    {"add_lane", (PyCFunction)Runs_add_lane, METH_VARARGS, "Let messages of a queue be acknowledged, or some be stored."},
    {"clear_lanes", (PyCFunction)Runs_clear_lanes, METH_NOARGS, "Let none be any more."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject AcksType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.kernel._native.AckRuns",
    .tp_doc = "Stores acknowledgements of messages of queues that have a lane.",
    .tp_basicsize = sizeof(Runs),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)Acks_init,
    .tp_dealloc = (destructor)Runs_dealloc,
    .tp_traverse = (traverseproc)Runs_traverse,
    .tp_clear = (inquiry)Runs_clear,
    .tp_methods = Acks_methods,
    .tp_getset = Runs_getset,
};

static int Deliveries_init(Runs *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"store_host", "max_body", "max_properties", "is_indexing", "crc32", NULL};
    PyObject *store_host, *crc32;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$SnnpO", names, &store_host, &self->max_body, &self->max_properties,
                                     &self->is_indexing, &crc32))
        return -1;
    Py_XSETREF(self->store_host, Py_NewRef(store_host));
    Py_XSETREF(self->crc32, Py_NewRef(crc32));
    return 0;
}

static PyMethodDef Deliveries_methods[] = {
    {"deliver", (PyCFunction)(void (*)(void))Deliveries_deliver, METH_FASTCALL, "Store messages whose time has come."},
    {"deliver_units", (PyCFunction)(void (*)(void))Deliveries_deliver_units, METH_FASTCALL, "Store delayed messages."},
    {"add_lane", (PyCFunction)Runs_add_lane, METH_VARARGS, "Let messages for a queue be stored."},
    {"clear_lanes", (PyCFunction)Runs_clear_lanes, METH_NOARGS, "Let none be stored any more."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject DeliveriesType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.kernel._native.Deliveries",
    .tp_doc = "Stores messages that waited for a time in the queues that have a lane.",
    .tp_basicsize = sizeof(Runs),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)Deliveries_init,
    .tp_dealloc = (destructor)Runs_dealloc,
    .tp_traverse = (traverseproc)Runs_traverse,
    .tp_clear = (inquiry)Runs_clear,
    .tp_methods = Deliveries_methods,
    .tp_getset = Runs_getset,
};

static PyMethodDef functions[] = {
    {"follow", (PyCFunction)(void (*)(void))follow, METH_FASTCALL, "Follow the chain of a slot of the timer."},
    {"gather", (PyCFunction)(void (*)(void))gather, METH_FASTCALL, "The compiled twin of orbitmq.kernel.gathering.gather."},
    {"hash_keys", hash_keys, METH_O, "Hashes of keys as an index has them."},
    {"is_sound", is_sound, METH_VARARGS, "Whether the slots of an index file are those that its entries make."},
    {"cut_entries", cut_entries, METH_VARARGS, "Make the slots of an index file anew from its first entries."},
    {"put_entries", (PyCFunction)(void (*)(void))put_entries, METH_FASTCALL, "Put entries into an index file."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_native", .m_doc = "Messages into the log and out of it, compiled.", .m_size = -1,
    .m_methods = functions};

PyMODINIT_FUNC PyInit__native(void) {
    PyTypeObject *types[] = {&QueueEndType, &CountType, &RunsType, &AcksType, &DeliveriesType, &PullsType, &WalksType};
    make_crc_table();
    PyObject *made = PyModule_Create(&module);
    for (size_t n = 0; made != NULL && n < sizeof types / sizeof *types; n++)
        if (PyModule_AddType(made, types[n]) < 0) Py_CLEAR(made);
    return made;
}
