/* SEND: appends sends from received bytes to the log in one pass. Twin of broker/send/processor.py,
 * store/append/appender.py and store/dispatch/dispatcher.py: both make the same bytes of the same requests.
 *
 * Only the success path is here. A frame that is unusual or needs an error response ends the batch, and Python handles
 * it. */
#include "broker/send.h"
#include "base/results.h"
#include "broker/deferral.h"
#include "broker/send_batch.h"
#include "protocol/properties.h"
#include "protocol/remoting_header.h"
#include "protocol/send_header.h"
#include "store/append.h"
#include "store/route_table.h"

/* Responses */

static uint8_t *put_sized_handle(const Batcher *self, uint8_t *at, const Deferral *deferral, const Send *send, Slice unique_key) {
    uint8_t *end = put_handle(self, at + 4, deferral, send, unique_key);
    put32(at, end - at - 4);
    return end;
}

static int put_answer(Batcher *self, int is_binary, const Send *send, const Deferral *deferral, Slice unique_key, int64_t queue_offset,
                      int64_t offset) {
    int is_timed = deferral->kind == DEFER_TIMER;
    PyObject *parts = is_binary ? (is_timed ? self->timed_binary_parts : self->binary_parts)
                                : (is_timed ? self->timed_json_parts : self->json_parts);
    ByteBuffer *buffer = &self->answers;
    Py_ssize_t before = buffer->size;
    /* Six numbers of 20 digits at most, sizes, and the fixed part of a binary header. */
    Py_ssize_t room = parts_size(parts) + unique_key.size + 200 + (is_timed ? handle_room(self, send, unique_key) : 0);
    uint8_t *start = buffer_extend(buffer, room);
    if (start == NULL) return -1;
    uint8_t *at = start + PREFIX_SIZE;
    if (is_binary) {
        uint8_t *fields = put_binary_head(self, at, send->opaque);
        at = put_hex(put_part(fields, parts, 0), offset);
        at = put_sized(put_part(at, parts, 1), send->queue_id);
        at = put_sized(put_part(at, parts, 3), queue_offset);
        at = put_part(at, parts, 5);
        put32(at, unique_key.size);
        at = put_bytes(at + 4, unique_key.at, unique_key.size);
        if (is_timed) at = put_sized_handle(self, put_part(at, parts, 7), deferral, send, unique_key);
        at = put_part(at, parts, PyTuple_GET_SIZE(parts) - 1);
        put32(fields - 4, at - fields);
    } else {
        Py_ssize_t next = 4;
        at = put_part(at, parts, 0);
        *at++ = '0';
        at = put_decimal(put_part(at, parts, 1), send->queue_id);
        at = put_bytes(put_part(at, parts, 2), unique_key.at, unique_key.size);
        at = put_hex(put_part(at, parts, 3), offset);
        if (is_timed) at = put_handle(self, put_part(at, parts, next++), deferral, send, unique_key);
        at = put_decimal(put_part(at, parts, next), queue_offset);
        at = put_decimal(put_part(at, parts, next + 1), send->opaque);
        at = put_part(at, parts, next + 2);
    }
    buffer->size = before + end_frame(start, at, is_binary);
    return 0;
}

/* Messages. Results: 1 appended, 0 for the Python path, -1 error. A group is parsed before its first message is
 * appended, so that the prefetched state of its queues arrives meanwhile. */

#define GROUP 64
#define APART 3 /* sends between two prefetch steps of one send: about a microsecond */

static int record_half(Batcher *self, QueueRoute *home) {
    if (home->halves++ == 0) {
        Py_ssize_t number = home - self->routes;
        uint8_t *at = buffer_extend(&self->half_routes, sizeof number);
        if (at == NULL) return -1;
        memcpy(at, &number, sizeof number);
    }
    return 0;
}

/* A send that is parsed and not appended yet. */
typedef struct {
    Send send;
    Slice properties, body;
    ParsedProperties parsed;
    QueueRoute *home;
    uint32_t hash; /* of the route */
    const uint8_t *end; /* of its frame */
    int found, is_binary;
} ParsedSend;

/* Parse the send of a frame. There is room for unescaped properties. */
static int read_one(Batcher *self, const uint8_t *header, Py_ssize_t header_size, int is_binary, Slice body, ParsedSend *parsed_send) {
    Request request;
    Send *send = &parsed_send->send;
    if (body.size == 0 || body.size > self->max_body) return 0;
    if (!(is_binary ? read_binary(header, header + header_size, which_of_send, &request)
                    : read_json(header, header + header_size, self->languages, which_of_send, &request)))
        return 0;
    if (!read_send(&request, send) || send->flag & ~(int64_t)ONEWAY) return 0;
    Slice properties = send->properties;
    int has_non_ascii = send->has_non_ascii;
    int lacks_end = properties.size > 0 && properties.at[properties.size - 1] != 2;
    if (send->has_escapes || lacks_end) {
        uint8_t *text = self->text.data + self->text.size;
        Py_ssize_t size = properties.size;
        if (send->has_escapes) size = unescape(properties, text, &has_non_ascii);
        else memcpy(text, properties.at, size);
        if (size < 0) return 0;
        /* Some clients leave the last separator away, which is stored all the same. */
        if (size > 0 && text[size - 1] != 2 && !send->is_batch) text[size++] = 2;
        self->text.size += size;
        properties = (Slice){text, size};
    }
    parsed_send->properties = properties;
    parsed_send->body = body;
    parsed_send->is_binary = is_binary;
    parsed_send->found = send->is_batch ? 0 : scan_properties(properties.at, properties.size, &parsed_send->parsed);
    parsed_send->parsed.has_non_ascii = has_non_ascii;
    return send->is_batch || parsed_send->found != NEEDS_PYTHON;
}

#define UNIQUE_KEY_NAME "UNIQ_KEY\1"
#define MADE_KEY_SIZE 80 /* name, separators and the 56 characters of an id with an IPv6 address, with some to spare */

/* Make the unique key of a message whose client sent none, as a property; -1 for an error. */
static int make_unique_key(Batcher *self, Slice *key, Slice *property) {
    PyObject *made = PyObject_CallNoArgs(self->unique_ids);
    if (made == NULL) return -1;
    Py_ssize_t size = 0, name = strlen(UNIQUE_KEY_NAME);
    const char *text = PyUnicode_AsUTF8AndSize(made, &size);
    self->made_key.size = 0;
    uint8_t *start = text == NULL ? NULL : buffer_extend(&self->made_key, name + size + 1);
    if (start != NULL) {
        *key = (Slice){put_literal(start, UNIQUE_KEY_NAME), size};
        *put_bytes((uint8_t *)key->at, text, size) = 2;
        *property = (Slice){start, name + size + 1};
    }
    Py_DECREF(made);
    return start == NULL ? -1 : 0;
}

static int append_send(Batcher *self, const ParsedSend *parsed_send, Slice born_host, LogCursor *cursor) {
    const Send *send = &parsed_send->send;
    Deferral deferral = {DEFER_NONE, 0, 0, 0};
    Record record;
    if (send->is_batch)
        return append_batch(self, send, parsed_send->properties, parsed_send->body, born_host, parsed_send->is_binary, cursor);
    if (parsed_send->found == MAY_BE_DEFERRED && !read_deferral(self, parsed_send->properties, cursor->now, &deferral)) return 0;
    ParsedProperties parsed = parsed_send->parsed;
    /* Without dispatch: deferral services have to be notified at once, and WAIT=false is answered before the flush. */
    if (self->dispatches_later && (deferral.kind != DEFER_NONE || parsed.no_wait_store)) return 0;
    if (self->answers_later && parsed.no_wait_store) return 0;
    QueueRoute *home = parsed_send->home, *route = home;
    if (home == NULL || (deferral.kind == DEFER_NONE && home->queue == NULL))
        return miss_route(self, (const char *)send->topic.at, send->topic.size, send->queue_id, 0, deferral.kind == DEFER_NONE);
    if (deferral.kind != DEFER_NONE) {
        const char *topic = DEFERRAL_TOPICS[deferral.kind];
        route = find_route(self, (const uint8_t *)topic, strlen(topic), deferral_queue(&deferral), 1);
        if (route == NULL) return miss_route(self, topic, strlen(topic), deferral_queue(&deferral), 1, 1);
    }
    Slice made_key = {NULL, 0};
    if (parsed.unique_key.at == NULL) {
        /* An id that is made has to be used: nothing behind this may decline the message. */
        Py_ssize_t most = parsed_send->properties.size + PyBytes_GET_SIZE(self->added) + send->topic.size + 2 * MADE_KEY_SIZE + 120;
        int has_room = has_room_for(self, route, born_host.size + parsed_send->body.size + most, most, cursor);
        if (has_room <= 0) return has_room;
        if (make_unique_key(self, &parsed.unique_key, &made_key) < 0) return -1;
    }
    if (put_suffix(self, &deferral, send, parsed.unique_key) < 0) return -1;
    record.parsed = parsed;
    record.flag = send->message_flag;
    record.sys_flag = send->sys_flag & self->kept_flags;
    record.born = send->born;
    record.born_host = born_host;
    record.body = parsed_send->body;
    record.reconsumed = send->reconsumed;
    record.properties[0] = parsed_send->properties;
    record.properties[1] = made_key;
    record.properties[2] = (Slice){(uint8_t *)PyBytes_AS_STRING(self->added), PyBytes_GET_SIZE(self->added)};
    record.properties[3] = (Slice){self->suffix.data, self->suffix.size};
    record.code = deferral.kind == DEFER_DELAY_LEVEL ? cursor->now + deferral.delay : tags_code(&parsed);
    int stored = append_record(self, route, &record, cursor);
    if (stored <= 0) return stored;
    if (deferral.kind == DEFER_HALF && record_half(self, home) < 0) return -1;
    if (send->flag & ONEWAY) return 1;
    return put_answer(self, parsed_send->is_binary, send, &deferral, parsed.unique_key, next_in(route) - 1, cursor->last_offset) < 0 ? -1 : 1;
}

typedef struct { const uint8_t *header, *body, *end; int is_binary; } Frame;

/* Find the frames that the bytes begin with, up to a whole group. */
static int find_frames(const uint8_t *at, const uint8_t *end, Frame *frames) {
    int count = 0;
    while (count < GROUP && end - at >= PREFIX_SIZE) {
        uint32_t length = get32(at), word = get32(at + 4);
        Py_ssize_t header_size = word & 0xFFFFFF;
        if (length > INT32_MAX || header_size + 4 > (Py_ssize_t)length || header_size > MAX_HEADER || word >> 24 > 1 ||
            end - at - 4 < (Py_ssize_t)length)
            break;
        const uint8_t *header = at + PREFIX_SIZE;
        at += 4 + (Py_ssize_t)length;
        frames[count++] = (Frame){header, header + header_size, at, word >> 24};
    }
    return count;
}

/* Prefetch queue state for sends of the group that were parsed some steps before `number`, one step each: all at once
 * would exceed the outstanding loads of a processor. */
static void prefetch_earlier(const Batcher *self, ParsedSend *group, int number, int count) {
    int at = number - APART;
    if (at >= 0 && at < count) prefetch_route(self, group[at].hash);
    at -= APART;
    if (at >= 0 && at < count) {
        ParsedSend *one = &group[at];
        one->home = find_hashed_route(self, one->hash, one->send.topic.at, one->send.topic.size, one->send.queue_id, 0);
        if (one->home != NULL) prefetch_queue(one->home);
    }
    at -= APART;
    if (at >= 0 && at < count && group[at].home != NULL) prefetch_tail(group[at].home);
}

/* Parse the sends that the bytes begin with, up to a whole group; their number, or -1 for an error. */
static int read_group(Batcher *self, const uint8_t *at, const uint8_t *end, ParsedSend *group) {
    Frame frames[GROUP];
    int all = find_frames(at, end, frames), count = 0;
    Py_ssize_t header_sizes = 1; /* so that the buffer is not empty; a header is longer than its properties and their end */
    for (int n = 0; n < all; n++) header_sizes += frames[n].body - frames[n].header;
    self->text.size = 0;
    if (buffer_extend(&self->text, header_sizes) == NULL) return -1;
    self->text.size = 0;
    while (count < all) {
        const Frame *frame = &frames[count];
        if (!read_one(self, frame->header, frame->body - frame->header, frame->is_binary,
                      (Slice){frame->body, frame->end - frame->body}, &group[count]))
            break;
        const Send *send = &group[count].send;
        group[count].hash = route_hash(send->topic.at, send->topic.size, send->queue_id, 0);
        prefetch_slot(self, group[count].hash);
        group[count++].end = frame->end;
        prefetch_earlier(self, group, count - 1, count);
    }
    for (int n = count; n < count + 3 * APART; n++) prefetch_earlier(self, group, n, count);
    return count;
}

/* Topics with the number of half messages each got in this batch; resets the numbers. */
static PyObject *half_counts(Batcher *self) {
    Py_ssize_t count = self->half_routes.size / sizeof(Py_ssize_t), number;
    PyObject *halves = PyList_New(count);
    for (Py_ssize_t n = 0; n < count; n++) {
        memcpy(&number, self->half_routes.data + n * sizeof number, sizeof number);
        QueueRoute *home = &self->routes[number];
        PyObject *pair = halves == NULL ? NULL : Py_BuildValue("(OL)", home->topic, (long long)home->halves);
        home->halves = 0;
        if (pair == NULL) Py_CLEAR(halves);
        else PyList_SET_ITEM(halves, n, pair);
    }
    self->half_routes.size = 0;
    return halves;
}

/* Append the sends that one connection's bytes begin with; -1 for an error, else the last result of append_send. */
static int append_chunk(Batcher *self, PyObject *data, PyObject *born_host, LogCursor *cursor, Py_ssize_t *size, long long *messages) {
    if (!PyBytes_Check(data) || !PyBytes_Check(born_host)) {
        PyErr_SetString(PyExc_TypeError, "data and born_host are bytes");
        return -1;
    }
    Slice host = {(uint8_t *)PyBytes_AS_STRING(born_host), PyBytes_GET_SIZE(born_host)};
    if (host.size != 8 && host.size != 20) {
        PyErr_SetString(PyExc_ValueError, "an address and port have 8 or 20 bytes");
        return -1;
    }
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(data), *at = start, *end = start + PyBytes_GET_SIZE(data);
    ParsedSend group[GROUP];
    int count = GROUP, taken = 1;
    *messages = 0;
    while (taken == 1 && count == GROUP) {
        count = read_group(self, at, end, group);
        if (count < 0) return -1;
        for (int n = 0; n < count; n++) {
            taken = append_send(self, &group[n], host, cursor);
            if (taken != 1) break;
            at = group[n].end;
            ++*messages;
        }
    }
    *size = at - start;
    return taken;
}

/* The Stored result of a batch. */
static PyObject *stored_result(Batcher *self, const LogCursor *cursor, PyObject *halves) {
    PyObject *entered = enter_routes(self, 1);
    if (entered == NULL) return NULL;
    return make_result(RESULT_STORED, from_int(cursor->position), entered, buffer_bytes(&self->hashes), buffer_bytes(&self->offsets),
                       from_int(cursor->last_offset), Py_NewRef(halves));
}

/* append(received, log, position, limit, base, now, has_listeners)
 *
 * `received` is a list of (bytes, sender address). Appends the sends that each element begins with. Returns a list of
 * Served, one per element, and the Stored result. */
static PyObject *SendBatcher_append(Batcher *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 7 || !PyList_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "append(received, log, position, limit, base, now, has_listeners)");
        return NULL;
    }
    LogCursor cursor = {0};
    Py_buffer log;
    if (begin_batch(self, args + 1, &log, &cursor) < 0) return NULL;
    PyObject *received = args[0], *result = NULL, *served = PyList_New(PyList_GET_SIZE(received));
    int taken = served == NULL ? -1 : 1;
    for (Py_ssize_t n = 0; taken >= 0 && n < PyList_GET_SIZE(served); n++) {
        PyObject *one = PyList_GET_ITEM(received, n);
        Py_ssize_t size = 0;
        long long messages = 0;
        self->answers.size = 0;
        if (!PyTuple_Check(one) || PyTuple_GET_SIZE(one) != 2) {
            PyErr_SetString(PyExc_TypeError, "each element of received is bytes and the address of their sender");
            taken = -1;
            break;
        }
        taken = append_chunk(self, PyTuple_GET_ITEM(one, 0), PyTuple_GET_ITEM(one, 1), &cursor, &size, &messages);
        PyObject *one_served = taken < 0 ? NULL : make_result(RESULT_SERVED, from_int(size), from_int(messages), buffer_bytes(&self->answers));
        if (one_served == NULL) taken = -1;
        else PyList_SET_ITEM(served, n, one_served);
    }
    PyBuffer_Release(&log);
    PyObject *halves = half_counts(self);
    PyObject *stored = taken < 0 || halves == NULL ? NULL : stored_result(self, &cursor, halves);
    if (stored != NULL) result = Py_BuildValue("(ON)", served, stored);
    Py_XDECREF(halves);
    Py_XDECREF(served);
    untouch(self);
    return result;
}

/* Address and port as they stand in message ids. */
static PyObject *hex_of_host(PyObject *host) {
    Py_ssize_t size = PyBytes_GET_SIZE(host);
    PyObject *text = PyBytes_FromStringAndSize(NULL, 2 * size);
    for (Py_ssize_t n = 0; text != NULL && n < size; n++) {
        uint8_t byte = PyBytes_AS_STRING(host)[n];
        PyBytes_AS_STRING(text)[2 * n] = "0123456789ABCDEF"[byte >> 4];
        PyBytes_AS_STRING(text)[2 * n + 1] = "0123456789ABCDEF"[byte & 15];
    }
    return text;
}

static int SendBatcher_init(Batcher *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"languages", "json_parts", "binary_parts", "timed_json_parts", "timed_binary_parts", "language",
                            "version", "added", "store_host", "kept_flags", "max_body", "max_properties", "is_indexing",
                            "crc32", "broker_name", "precision", "longest", "delays", "batch_json", "batch_binary",
                            "dispatches_later", "unique_ids", "answers_later", NULL};
    PyObject *languages, *json_parts, *binary_parts, *timed_json_parts, *timed_binary_parts, *added, *store_host, *crc32;
    PyObject *broker_name, *delays, *batch_json, *batch_binary, *unique_ids;
    long long kept_flags, precision, longest;
    PyTypeObject *tuple = &PyTuple_Type;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$O!O!O!O!O!llSSLnnpOSLLO!O!SpOp", names, tuple, &languages, tuple,
                                     &json_parts, tuple, &binary_parts, tuple, &timed_json_parts, tuple,
                                     &timed_binary_parts, &self->language, &self->version, &added, &store_host,
                                     &kept_flags, &self->max_body, &self->max_properties, &self->is_indexing, &crc32,
                                     &broker_name, &precision, &longest, tuple, &delays, tuple, &batch_json, &batch_binary,
                                     &self->dispatches_later, &unique_ids, &self->answers_later))
        return -1;
    if (!are_bytes(languages) || !are_bytes(json_parts) || !are_bytes(binary_parts) || !are_bytes(timed_json_parts) ||
        !are_bytes(timed_binary_parts) || !are_bytes(batch_json))
        return -1;
    if (PyTuple_GET_SIZE(json_parts) != 7 || PyTuple_GET_SIZE(binary_parts) != 8 ||
        PyTuple_GET_SIZE(timed_json_parts) != 8 || PyTuple_GET_SIZE(timed_binary_parts) != 10 ||
        PyTuple_GET_SIZE(batch_json) != 3) {
        PyErr_SetString(PyExc_ValueError,
                        "a response has 6 values in JSON and 7 in binary, with a handle 7 and 9, and that to a batch 2");
        return -1;
    }
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(delays); n++)
        if (PyLong_AsLongLong(PyTuple_GET_ITEM(delays, n)) == -1 && PyErr_Occurred()) return -1;
    /* A number of milliseconds of 18 digits times 1,000 plus one would overflow. */
    if (precision <= 0 || longest > INT64_MAX / 4000) {
        PyErr_SetString(PyExc_ValueError, "precision and the longest delay are numbers of milliseconds");
        return -1;
    }
    Py_XSETREF(self->languages, Py_NewRef(languages));
    Py_XSETREF(self->json_parts, Py_NewRef(json_parts));
    Py_XSETREF(self->binary_parts, Py_NewRef(binary_parts));
    Py_XSETREF(self->timed_json_parts, Py_NewRef(timed_json_parts));
    Py_XSETREF(self->timed_binary_parts, Py_NewRef(timed_binary_parts));
    PyObject *host_hex = hex_of_host(store_host);
    if (host_hex == NULL) return -1;
    Py_XSETREF(self->host_hex, host_hex);
    Py_XSETREF(self->batch_json, Py_NewRef(batch_json));
    Py_XSETREF(self->batch_binary, Py_NewRef(batch_binary));
    Py_XSETREF(self->broker_name, Py_NewRef(broker_name));
    Py_XSETREF(self->delays, Py_NewRef(delays));
    Py_XSETREF(self->added, Py_NewRef(added));
    Py_XSETREF(self->store_host, Py_NewRef(store_host));
    Py_XSETREF(self->crc32, Py_NewRef(crc32));
    Py_XSETREF(self->unique_ids, Py_NewRef(unique_ids));
    self->kept_flags = kept_flags;
    self->precision = precision;
    self->longest = longest;
    return 0;
}

static PyMethodDef SendBatcher_methods[] = {
    {"append", (PyCFunction)(void (*)(void))SendBatcher_append, METH_FASTCALL, "Append the sends that received bytes begin with."},
    {"add_route", (PyCFunction)Batcher_add_route, METH_VARARGS, "Open a route to a queue."},
    {"clear_routes", (PyCFunction)Batcher_clear_routes, METH_NOARGS, "Close all routes."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject SendBatcherType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.native._native.SendBatcher",
    .tp_doc = "Appends sends to queues that have a route.",
    .tp_basicsize = sizeof(Batcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)SendBatcher_init,
    .tp_dealloc = (destructor)Batcher_dealloc,
    .tp_traverse = (traverseproc)Batcher_traverse,
    .tp_clear = (inquiry)Batcher_clear,
    .tp_methods = SendBatcher_methods,
    .tp_getset = Batcher_getset,
};
