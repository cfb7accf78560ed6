/* ACK_MESSAGE and BATCH_ACK_MESSAGE: append acknowledgements of popped messages to the log. Twin of broker/pop/ack.py and
 * of the acks that broker/pop/checkpoint.py writes. One that would be refused, or is due already, ends the batch. */
#include "broker/pop_ack.h"
#include "broker/pop_ack_batch.h"
#include "base/results.h"
#include "broker/deferral.h"
#include "protocol/remoting_header.h"
#include "store/append.h"
#include "store/queue_state.h"
#include "store/route_table.h"

#define ACK_MESSAGE 200051
#define ORDERLY 999
#define RECEIPT_PARTS 8

enum { ACK_GROUP, ACK_TOPIC, ACK_QUEUE, ACK_RECEIPT, ACK_OFFSET, ACK_FIELDS };

/* Messages of one pop that one group acknowledged in one queue, and the acknowledgements that named them. */
typedef struct {
    Py_ssize_t route;
    Slice group;
    int64_t pop_time, count, acks;
} AckedRange;

static int64_t bit_offset(const Ack *ack, int bit) { return ack->start + bit; }

static int has_bit(const Ack *ack, int bit) { return ack->bits[bit / 8] >> bit % 8 & 1; }

static int which_of_ack(Slice name) {
    switch (name.size) {
        case 5: return slice_equals(name, "topic") ? ACK_TOPIC : -1;
        case 6: return slice_equals(name, "offset") ? ACK_OFFSET : -1;
        case 7: return slice_equals(name, "queueId") ? ACK_QUEUE : -1;
        case 9: return slice_equals(name, "extraInfo") ? ACK_RECEIPT : -1;
        case 13: return slice_equals(name, "consumerGroup") ? ACK_GROUP : -1;
        default: return -1;
    }
}

/* Parse a receipt handle; 0 if a part of it is unusual. */
static int read_receipt(Slice receipt, Ack *ack) {
    Slice parts[RECEIPT_PARTS];
    int64_t unused;
    const uint8_t *at = receipt.at, *end = at + receipt.size;
    for (int n = 0; n < RECEIPT_PARTS; n++) {
        if (at > end) return 0;
        const uint8_t *blank = memchr(at, ' ', end - at);
        if (blank == NULL) blank = end;
        parts[n] = (Slice){at, blank - at};
        at = blank + 1;
    }
    ack->broker_name = parts[5];
    return number_of(parts[0], 0, &ack->start) && number_of(parts[1], 0, &ack->pop_time) &&
           number_of(parts[2], 0, &ack->invisible) && number_of(parts[3], 0, &ack->revive_queue) &&
           number_of(parts[6], 0, &unused) && number_of(parts[7], 0, &unused);
}

static int read_ack(const Request *request, Ack *ack) {
    const Slice *fields = request->fields;
    if (request->code != ACK_MESSAGE || request->escaped || request->non_ascii || request->present != (1u << ACK_FIELDS) - 1) return 0;
    ack->group = fields[ACK_GROUP];
    ack->topic = fields[ACK_TOPIC];
    ack->bits_size = 0;
    ack->count = 1;
    return int32_of(fields[ACK_QUEUE], &ack->queue_id) && ack->queue_id >= 0 &&
           number_of(fields[ACK_OFFSET], 0, &ack->offset) && read_receipt(fields[ACK_RECEIPT], ack);
}

static int has_offset(const QueueRoute *home, int64_t offset) {
    const QueueStateObject *queue = (QueueStateObject *)home->queue->owner;
    return queue->min_offset <= offset && offset <= home->queue->end;
}

static int record_ack(Batcher *self, QueueRoute *home, const Ack *ack) {
    Py_ssize_t number = home - self->routes, count = self->acked_ranges.size / sizeof(AckedRange);
    AckedRange *all = (AckedRange *)self->acked_ranges.data;
    for (Py_ssize_t n = count; n-- > 0 && n >= count - 8;)
        if (all[n].route == number && all[n].pop_time == ack->pop_time && all[n].group.size == ack->group.size &&
            memcmp(all[n].group.at, ack->group.at, ack->group.size) == 0) {
            all[n].count += ack->count;
            all[n].acks++;
            return 0;
        }
    AckedRange one = {number, ack->group, ack->pop_time, ack->count, 1};
    uint8_t *at = buffer_extend(&self->acked_ranges, sizeof one);
    if (at == NULL) return -1;
    memcpy(at, &one, sizeof one);
    return 0;
}

/* More bytes than the body and the properties of an acknowledgement have. */
static int64_t ack_room(const Batcher *self, const Ack *ack) {
    Py_ssize_t names = ack->topic.size + ack->group.size + ack->broker_name.size;
    return 2 * names + PyBytes_GET_SIZE(self->revive_topic) + 500 + (ack->bits_size > 0 ? 20 * ack->count : 0);
}

/* The offset in an acknowledgement; that of several messages has -1, as in RocketMQ. */
static uint8_t *put_ack_offset(uint8_t *at, const Ack *ack) {
    return ack->bits_size > 0 ? put_literal(at, "-1") : put_decimal(at, ack->offset);
}

static uint8_t *put_offset_list(uint8_t *at, const Ack *ack) {
    at = put_literal(at, ",\"aol\":[");
    int is_first = 1;
    for (int bit = 0; bit < 8 * ack->bits_size; bit++) {
        if (!has_bit(ack, bit)) continue;
        if (!is_first) *at++ = ',';
        is_first = 0;
        at = put_decimal(at, bit_offset(ack, bit));
    }
    *at++ = ']';
    return at;
}

/* Put the properties of a record behind its body, in RocketMQ's order, and fill in the record. */
static void put_revive_properties(const Batcher *self, uint8_t *at, const RevivedRecord *revived, int64_t now, Record *record) {
    Slice revive = {(uint8_t *)PyBytes_AS_STRING(self->revive_topic), PyBytes_GET_SIZE(self->revive_topic)};
    uint8_t *properties = at;
    at = put_bytes(put_literal(at, "REAL_TOPIC\1"), revive.at, revive.size);
    at = put_decimal(put_literal(at, "\2TIMER_DELIVER_MS\1"), revived->deliver);
    uint8_t *key = at = put_literal(at, "\2UNIQ_KEY\1");
    at = put_bytes(at, revived->topic.at, revived->topic.size);
    at = put_decimal(put_literal(at, "@"), revived->queue_id);
    at = put_literal(at, "@");
    at = revived->offset < 0 ? put_literal(at, "-1") : put_decimal(at, revived->offset);
    at = put_bytes(put_literal(at, "@"), revived->group.at, revived->group.size);
    at = put_decimal(put_literal(at, "@"), revived->pop_time);
    at = put_bytes(put_literal(at, "@"), revived->broker_name.at, revived->broker_name.size);
    at = put_literal(at, revived->key_end);
    memset(&record->parsed, 0, sizeof record->parsed);
    record->parsed.unique_key = (Slice){key, at - key};
    at = put_literal(at, "\2TAGS\1");
    record->parsed.tags = (Slice){at, strlen(revived->tag)};
    at = put_literal(put_literal(at, revived->tag), "\2TIMER_OUT_MS\1");
    at = put_decimal(at, (revived->deliver - 1) / self->precision * self->precision);
    at = put_decimal(put_literal(at, "\2REAL_QID\1"), revived->revive_queue);
    *at++ = 2;
    record->body = revived->body;
    record->properties[0] = (Slice){properties, at - properties};
    record->properties[1] = record->properties[2] = record->properties[3] = (Slice){NULL, 0};
    record->flag = record->sys_flag = record->reconsumed = 0;
    record->born = now;
    record->born_host = (Slice){(uint8_t *)PyBytes_AS_STRING(self->store_host), PyBytes_GET_SIZE(self->store_host)};
    record->code = tags_code(&record->parsed);
}

static int write_ack(Batcher *self, const Ack *ack, int64_t deliver, int64_t now, Record *record) {
    self->text.size = 0;
    uint8_t *start = buffer_extend(&self->text, ack_room(self, ack)), *at = start;
    if (start == NULL) return -1;
    at = put_ack_offset(put_literal(at, "{\"ao\":"), ack);
    if (ack->bits_size > 0) at = put_offset_list(at, ack);
    at = put_bytes(put_literal(at, ",\"bn\":\""), ack->broker_name.at, ack->broker_name.size);
    at = put_bytes(put_literal(at, "\",\"c\":\""), ack->group.at, ack->group.size);
    at = put_decimal(put_literal(at, "\",\"pt\":"), ack->pop_time);
    at = put_decimal(put_literal(at, ",\"q\":"), ack->queue_id);
    at = put_decimal(put_literal(at, ",\"so\":"), ack->start);
    at = put_bytes(put_literal(at, ",\"t\":\""), ack->topic.at, ack->topic.size);
    at = put_literal(at, "\"}");
    RevivedRecord revived = {
        .body = {start, at - start}, .topic = ack->topic, .group = ack->group, .broker_name = ack->broker_name,
        .queue_id = ack->queue_id, .offset = ack->bits_size > 0 ? -1 : ack->offset, .pop_time = ack->pop_time,
        .deliver = deliver, .revive_queue = ack->revive_queue, .key_end = "@ack", .tag = ack->bits_size > 0 ? "bAck" : "ack"};
    put_revive_properties(self, at, &revived, now, record);
    return 0;
}

/* The routes of the queue whose messages are acknowledged and of the timer; 1 if both are there and the acknowledgement is
 * one to store, 0 if it is for the Python path, -1 for an error. */
static int find_ack_routes(Batcher *self, const Ack *ack, const LogCursor *cursor, QueueRoute **home, QueueRoute **timer) {
    int64_t deliver = ack->pop_time + ack->invisible;
    if (ack->revive_queue >= self->revive_queues || ack->revive_queue == ORDERLY || deliver <= cursor->now ||
        deliver - cursor->now > self->longest)
        return 0;
    *home = find_route(self, ack->topic.at, ack->topic.size, ack->queue_id, 0);
    if (*home == NULL) return miss_route(self, (const char *)ack->topic.at, ack->topic.size, ack->queue_id, 0, 1);
    const char *topic = DEFERRAL_TOPICS[DEFER_TIMER];
    *timer = find_route(self, (const uint8_t *)topic, strlen(topic), 0, 1);
    if (*timer == NULL) return miss_route(self, topic, strlen(topic), 0, 1, 1);
    return 1;
}

static int append_ack(Batcher *self, QueueRoute *home, QueueRoute *timer, const Ack *ack, LogCursor *cursor) {
    Record record;
    if (write_ack(self, ack, ack->pop_time + ack->invisible, cursor->now, &record) < 0) return -1;
    int stored = append_record(self, timer, &record, cursor);
    if (stored <= 0) return stored;
    return record_ack(self, home, ack) < 0 ? -1 : 1;
}

static int acknowledge_one(Batcher *self, const Request *request, LogCursor *cursor) {
    Ack ack;
    QueueRoute *home, *timer;
    if (!request->has_fields || !read_ack(request, &ack)) return 0;
    int found = find_ack_routes(self, &ack, cursor, &home, &timer);
    if (found <= 0) return found;
    return has_offset(home, ack.offset) ? append_ack(self, home, timer, &ack, cursor) : 0;
}

/* Append what a request acknowledges: JSON, as all clients send it. */
static int acknowledge(Batcher *self, const uint8_t *header, Py_ssize_t size, Slice body, LogCursor *cursor, Request *request) {
    if (!read_json_head(header, header + size, self->languages, which_of_ack, request)) return 0;
    if (request->flag & ~(int64_t)ONEWAY) return 0;
    if (request->code == BATCH_ACK_MESSAGE) return acknowledge_batch(self, body, cursor);
    return body.size == 0 ? acknowledge_one(self, request, cursor) : 0;
}

static PyObject *acked_ranges_of(Batcher *self) {
    Py_ssize_t count = self->acked_ranges.size / sizeof(AckedRange);
    AckedRange *all = (AckedRange *)self->acked_ranges.data;
    PyObject *list = PyList_New(count);
    for (Py_ssize_t n = 0; list != NULL && n < count; n++) {
        QueueRoute *home = &self->routes[all[n].route];
        PyObject *one = make_result(RESULT_ACKED_RANGE, Py_NewRef(home->topic), from_int(home->queue_id),
                                    PyUnicode_DecodeUTF8((const char *)all[n].group.at, all[n].group.size, NULL),
                                    from_int(all[n].pop_time), from_int(all[n].count), from_int(all[n].acks));
        if (one == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, n, one);
    }
    self->acked_ranges.size = 0;
    return list;
}

/* append(data, log, position, limit, base, now, has_listeners): as SendBatcher.append, with acknowledged ranges instead
 * of half messages. */
static PyObject *AckBatcher_append(Batcher *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 7 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "append(data, log, position, limit, base, now, has_listeners)");
        return NULL;
    }
    LogCursor cursor = {0};
    Py_buffer log;
    if (begin_batch(self, args + 1, &log, &cursor) < 0) return NULL;
    self->acked_ranges.size = 0;
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(args[0]), *at = start, *end = start + PyBytes_GET_SIZE(args[0]);
    long long requests = 0, records = 0;
    int taken = 1;
    while (end - at >= PREFIX_SIZE) {
        uint32_t length = get32(at), header_size = get32(at + 4);
        if (length > INT32_MAX || header_size > MAX_HEADER || header_size + 4 > length || end - at - 4 < (Py_ssize_t)length) break;
        Request request;
        const uint8_t *header = at + PREFIX_SIZE;
        Slice body = {header + header_size, (Py_ssize_t)length - 4 - header_size};
        taken = acknowledge(self, header, header_size, body, &cursor, &request);
        if (taken != 1) break;
        at += 4 + (Py_ssize_t)length;
        requests++;
        records += request.code == BATCH_ACK_MESSAGE ? self->items.size / (Py_ssize_t)sizeof(Ack) : 1;
        if (request.flag & ONEWAY) continue;
        Py_ssize_t before = self->answers.size;
        uint8_t *answer = buffer_extend(&self->answers, PREFIX_SIZE + parts_size(self->json_parts) + 20);
        if (answer == NULL) { taken = -1; break; }
        uint8_t *stop = put_decimal(put_part(answer + PREFIX_SIZE, self->json_parts, 0), request.opaque);
        stop = put_part(stop, self->json_parts, 1);
        self->answers.size = before + end_frame(answer, stop, 0);
    }
    PyBuffer_Release(&log);
    PyObject *result = NULL, *acked_ranges = acked_ranges_of(self);
    if (taken >= 0 && acked_ranges != NULL) {
        PyObject *entered = enter_routes(self, 1);
        if (entered != NULL)
            result = make_result(RESULT_ACKNOWLEDGED, from_int(at - start), from_int(requests), from_int(records), from_int(cursor.position),
                                 buffer_bytes(&self->answers), entered, buffer_bytes(&self->hashes),
                                 buffer_bytes(&self->offsets), from_int(cursor.last_offset), Py_NewRef(acked_ranges));
    }
    Py_XDECREF(acked_ranges);
    untouch(self);
    return result;
}

static int AckBatcher_init(Batcher *self, PyObject *args, PyObject *keywords) {
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
        PyErr_SetString(PyExc_ValueError, "a response has one value, and precision is a number of milliseconds");
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

static PyMethodDef AckBatcher_methods[] = {
    {"append", (PyCFunction)(void (*)(void))AckBatcher_append, METH_FASTCALL, "Append the acknowledgements that data begins with."},
    {"add_route", (PyCFunction)Batcher_add_route, METH_VARARGS, "Open a route to a queue."},
    {"clear_routes", (PyCFunction)Batcher_clear_routes, METH_NOARGS, "Close all routes."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject AckBatcherType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.native._native.AckBatcher",
    .tp_doc = "Appends acknowledgements of messages of queues that have a route.",
    .tp_basicsize = sizeof(Batcher),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)AckBatcher_init,
    .tp_dealloc = (destructor)Batcher_dealloc,
    .tp_traverse = (traverseproc)Batcher_traverse,
    .tp_clear = (inquiry)Batcher_clear,
    .tp_methods = AckBatcher_methods,
    .tp_getset = Batcher_getset,
};
