/* POP_MESSAGE: pops that find messages, from received bytes to the check points and the response. Twin of
 * broker/pop/processor.py and of the check points that broker/pop/checkpoint.py writes. A pop that finds nothing, has to
 * wait, has a filter by properties or needs another response is for the Python path; nothing was changed for it then. */
#include "broker/pop.h"
#include "base/results.h"
#include "broker/deferral.h"
#include "broker/pop_ack.h"
#include "broker/pull.h"
#include "protocol/remoting_header.h"
#include "store/append.h"
#include "store/gather_records.h"
#include "store/queue_state.h"
#include "store/route_table.h"

#define POP_MESSAGE 200050
#define MAX_POPPED 32   /* messages of one pop, as in RocketMQ */
#define AHEAD_MS 1000   /* as in broker/pop/checkpoint.py */
#define MAX_QUEUES_POPPED 64

enum {
    POP_GROUP, POP_TOPIC, POP_QUEUE, POP_COUNT, POP_INVISIBLE, POP_POLL, POP_BORN, POP_MODE, POP_ORDER,
    POP_NEEDED, POP_KIND = POP_NEEDED, POP_EXPRESSION, POP_FIELDS
};

typedef struct { int64_t count, invisible, opaque; Slice group, topic; const Request *request; } Pop;

/* Messages of one queue: their queue offsets, those that a filter left out not among them, and the next offset. */
typedef struct { int64_t queue_id, start, following, count, size, offsets[MAX_POPPED]; } PopItem;

typedef struct {
    Batcher batcher;
    PyObject *pop_routes; /* by key: pairs of a queue and its read, what the caller's state is named by, tags codes or None */
    PyObject *state;      /* called with that name: the group's offsets by queue id, or None if the pop is for Python */
    int64_t most, most_bytes, filtered; /* filtered: units that a pop with a filter examines */
    int goes_down; /* from the last queue of a topic to the first */
    ByteBuffer units, all_units, skipped, records, found, starts, offset_info;
} PopServer;

static int which_of_pop(Slice name) {
    switch (name.size) {
        case 3: return slice_equals(name, "exp") ? POP_EXPRESSION : -1;
        case 5: return slice_equals(name, "topic") ? POP_TOPIC : slice_equals(name, "order") ? POP_ORDER : -1;
        case 7: return slice_equals(name, "queueId") ? POP_QUEUE : slice_equals(name, "expType") ? POP_KIND : -1;
        case 8:
            return slice_equals(name, "pollTime")   ? POP_POLL
                   : slice_equals(name, "bornTime") ? POP_BORN
                   : slice_equals(name, "initMode") ? POP_MODE
                                                    : -1;
        case 10: return slice_equals(name, "maxMsgNums") ? POP_COUNT : -1;
        case 13:
            return slice_equals(name, "consumerGroup") ? POP_GROUP : slice_equals(name, "invisibleTime") ? POP_INVISIBLE : -1;
        default: return -1;
    }
}

static int read_pop(const PopServer *self, const Request *request, Pop *pop) {
    const Slice *fields = request->fields;
    const uint32_t needed = (1u << POP_NEEDED) - 1;
    int64_t unused;
    if (request->code != POP_MESSAGE || request->flag || request->escaped || request->non_ascii ||
        (request->present & needed) != needed)
        return 0;
    pop->group = fields[POP_GROUP];
    pop->topic = fields[POP_TOPIC];
    pop->opaque = request->opaque;
    pop->request = request;
    return slice_equals(fields[POP_QUEUE], "-1") && slice_equals(fields[POP_ORDER], "false") &&
           number_of(fields[POP_COUNT], 0, &pop->count) && pop->count >= 1 && pop->count <= MAX_POPPED &&
           number_of(fields[POP_INVISIBLE], 0, &pop->invisible) && pop->invisible > AHEAD_MS &&
           pop->invisible <= self->batcher.longest && number_of(fields[POP_POLL], 0, &unused) &&
           number_of(fields[POP_BORN], 0, &unused) && int32_of(fields[POP_MODE], &unused);
}

/* Routes: all fields that the decision about a kind of pop depends on */

static const int pop_key_parts[] = {POP_GROUP, POP_TOPIC, POP_KIND, POP_EXPRESSION};
#define POP_KEY_PARTS 4

static PyObject *pop_text(const Pop *pop, int part) {
    if (!(pop->request->present >> part & 1)) return Py_NewRef(Py_None);
    return PyUnicode_DecodeASCII((const char *)pop->request->fields[part].at, pop->request->fields[part].size, NULL);
}

static PyObject *pop_key(PopServer *self, const Pop *pop) {
    ByteBuffer *text = &self->batcher.text;
    text->size = 0;
    for (int n = 0; n < POP_KEY_PARTS; n++) {
        int is_there = pop->request->present >> pop_key_parts[n] & 1;
        Slice value = is_there ? pop->request->fields[pop_key_parts[n]] : (Slice){NULL, 0};
        uint8_t *at = buffer_extend(text, 4 + value.size);
        if (at == NULL) return NULL;
        put32(at, is_there ? (uint32_t)value.size : UINT32_MAX);
        put_bytes(at + 4, value.at, value.size);
    }
    return buffer_bytes(text);
}

/* The route of a pop, borrowed; NULL without an error if there is none, or if such pops are for the Python path. */
static PyObject *find_pop_route(PopServer *self, const Pop *pop) {
    PyObject *key = pop_key(self, pop);
    if (key == NULL) return NULL;
    PyObject *route = PyDict_GetItemWithError(self->pop_routes, key);
    if (route == NULL && !PyErr_Occurred()) {
        PyObject *missing = Py_BuildValue("(ONNNN)", key, pop_text(pop, POP_GROUP), pop_text(pop, POP_TOPIC),
                                          pop_text(pop, POP_KIND), pop_text(pop, POP_EXPRESSION));
        if (missing != NULL) Py_XSETREF(self->batcher.missing, missing);
    }
    Py_DECREF(key);
    return route == Py_None ? NULL : route;
}

/* Reading */

/* Copy units of a queue; how many, or -1 for an error. */
static Py_ssize_t copy_units(ByteBuffer *units, QueueStateObject *queue, PyObject *read, int64_t number, int64_t most) {
    if (move_fresh_to_tail(queue->at) < 0) return -1;
    units->size = 0;
    PyObject *found = NULL;
    const uint8_t *from;
    int64_t count;
    if (number < queue->tail_start) {
        found = call_read(read, number, most);
        if (found == NULL) return -1;
        from = (const uint8_t *)PyBytes_AS_STRING(found);
        count = PyBytes_GET_SIZE(found) / UNIT_SIZE;
    } else {
        from = queue->at->tail + (number - queue->tail_start) * UNIT_SIZE;
        count = queue->at->tail_size / UNIT_SIZE - (number - queue->tail_start);
    }
    if (count > most) count = most;
    uint8_t *to = count <= 0 ? NULL : buffer_extend(units, count * UNIT_SIZE);
    if (to != NULL) memcpy(to, from, count * UNIT_SIZE);
    Py_XDECREF(found);
    return count > 0 && to == NULL ? -1 : count < 0 ? 0 : (Py_ssize_t)count;
}

/* Copy the records to self->records; 1 if done, 0 if they are for the Python path, -1 for an error. */
static int copy_popped(PopServer *self, const Gathered *found, int64_t queue_id, int64_t number, const uint32_t *skipped,
                       const LogWindow *window) {
    PyObject *first = PyLong_FromLongLong(found->first);
    PyObject *buffer = first == NULL ? NULL : PyObject_CallOneArg(window->buffer_at, first);
    Py_XDECREF(first);
    if (buffer == NULL) return -1;
    Py_buffer log;
    int64_t base = found->first - found->first % window->file_size;
    int is_copied = 0;
    if (buffer != Py_None) {
        if (PyObject_GetBuffer(buffer, &log, PyBUF_SIMPLE) < 0) {
            is_copied = -1;
        } else {
            if (found->stop - base <= log.len && are_of_queue(self->units.data, found, base, &log, queue_id, number, skipped)) {
                Py_ssize_t before = self->records.size;
                uint8_t *to = buffer_extend(&self->records, found->total);
                is_copied = to == NULL ? -1 : copy_records(self->units.data, found, base, &log, to);
                if (is_copied <= 0) self->records.size = before;
            }
            PyBuffer_Release(&log);
        }
    }
    Py_DECREF(buffer);
    return is_copied;
}

/* The offset of a group in a queue; 0 if it has none, -1 for an error. */
static int offset_in(PyObject *offsets, int64_t queue_id, int64_t *offset) {
    PyObject *key = PyLong_FromLongLong(queue_id);
    if (key == NULL) return -1;
    PyObject *value = PyDict_GetItemWithError(offsets, key);
    Py_DECREF(key);
    if (value == NULL) return PyErr_Occurred() ? -1 : 0;
    *offset = PyLong_AsLongLong(value);
    return PyErr_Occurred() ? -1 : 1;
}

/* Find units of a queue, to self->units. Returns how many were examined, 0 if they are for the Python path, -1 for an
 * error. */
static int64_t find_popped(PopServer *self, PyObject *queue_and_read, PyObject *codes, int64_t number, int64_t left,
                           const LogWindow *window) {
    int64_t most = left < self->most ? left : self->most;
    QueueStateObject *queue = (QueueStateObject *)PyTuple_GET_ITEM(queue_and_read, 0);
    PyObject *read = PyTuple_GET_ITEM(queue_and_read, 1);
    if (codes == Py_None) return copy_units(&self->units, queue, read, number, most);
    int64_t limit = left > self->filtered ? left : self->filtered;
    Py_ssize_t count = copy_units(&self->all_units, queue, read, number, limit);
    if (count <= 0) return count;
    return select_units(&self->units, &self->skipped, codes, most, self->most_bytes, self->all_units.data, count, window);
}

/* Read from a queue what is still wanted. 1 if the pop may go on, 0 if it is for the Python path, -1 for an error. */
static int pop_queue(PopServer *self, PyObject *queue_and_read, PyObject *codes, PyObject *offsets, PopItem *item, int64_t left,
                     int64_t *rest, const LogWindow *window) {
    QueueStateObject *queue = (QueueStateObject *)PyTuple_GET_ITEM(queue_and_read, 0);
    int has_offset = offset_in(offsets, item->queue_id, &item->start);
    if (has_offset <= 0) return has_offset;
    int64_t low = queue->min_offset, high = queue->at->end;
    item->count = 0;
    if (item->start == high) return 1;
    if (item->start < low || item->start > high) return 0;
    if (left == 0) {
        *rest += high - item->start;
        return 1;
    }
    Gathered found;
    int64_t examined = find_popped(self, queue_and_read, codes, item->start, left, window);
    if (examined <= 0) return (int)examined;
    /* Without a match the Python path moves the group on. */
    if (!find_records(self->units.data, self->units.size / UNIT_SIZE, self->most_bytes, &found) || found.first < window->first ||
        found.first < window->checked_from || found.stop > window->end || window->end - found.first > window->window)
        return 0;
    const uint32_t *skipped = codes == Py_None ? NULL : (const uint32_t *)self->skipped.data;
    item->count = found.count;
    item->size = found.total;
    item->following = item->start + (codes == Py_None ? found.count : examined);
    for (Py_ssize_t n = 0; n < found.count; n++) item->offsets[n] = item->start + n + (skipped == NULL ? 0 : skipped[n]);
    *rest += high - item->following;
    return copy_popped(self, &found, item->queue_id, item->start, skipped, window);
}

/* Read from the queues of a topic in turn, beginning with one of them. Returns the number of queues that gave messages,
 * whose items are in self->found; 0 if the pop is for the Python path, -1 for an error. */
static Py_ssize_t pop_topic(PopServer *self, const Pop *pop, PyObject *queues, PyObject *codes, PyObject *offsets, int64_t draw,
                            int64_t *rest, const LogWindow *window) {
    Py_ssize_t queue_count = PyTuple_GET_SIZE(queues), items = 0;
    int64_t left = pop->count;
    self->found.size = self->records.size = 0;
    *rest = 0;
    for (Py_ssize_t n = 0; n < queue_count; n++) {
        PopItem item = {.queue_id = (draw + (self->goes_down ? queue_count - 1 - n : n)) % queue_count};
        int done = pop_queue(self, PyTuple_GET_ITEM(queues, item.queue_id), codes, offsets, &item, left, rest, window);
        if (done <= 0) return done;
        if (item.count == 0) continue;
        uint8_t *at = buffer_extend(&self->found, sizeof item);
        if (at == NULL) return -1;
        memcpy(at, &item, sizeof item);
        left -= item.count;
        items++;
    }
    return items;
}

/* Check points */

/* More bytes than the body and the properties of a check point have. */
static int64_t check_point_room(const Batcher *self, const Pop *pop) {
    Py_ssize_t names = pop->topic.size + pop->group.size + PyBytes_GET_SIZE(self->broker_name);
    return 2 * names + PyBytes_GET_SIZE(self->revive_topic) + 700 + 12 * MAX_POPPED;
}

/* Append the check point of a queue's messages, with its properties in RocketMQ's order. As append_record. */
static int append_check_point(Batcher *self, QueueRoute *timer, const Pop *pop, const PopItem *item, int64_t revive_queue,
                              LogCursor *cursor) {
    Slice broker = {(uint8_t *)PyBytes_AS_STRING(self->broker_name), PyBytes_GET_SIZE(self->broker_name)};
    Record record;
    self->text.size = 0;
    uint8_t *start = buffer_extend(&self->text, check_point_room(self, pop)), *at = start;
    if (start == NULL) return -1;
    at = put_bytes(put_literal(at, "{\"bm\":0,\"bn\":\""), broker.at, broker.size);
    at = put_bytes(put_literal(at, "\",\"c\":\""), pop->group.at, pop->group.size);
    at = put_literal(at, "\",\"d\":[");
    for (int64_t n = 0; n < item->count; n++) at = put_decimal(n > 0 ? put_literal(at, ",") : at, item->offsets[n] - item->start);
    at = put_decimal(put_literal(at, "],\"it\":"), pop->invisible);
    at = put_decimal(put_literal(at, ",\"n\":"), item->count);
    at = put_decimal(put_literal(at, ",\"pt\":"), cursor->now);
    at = put_decimal(put_literal(at, ",\"q\":"), item->queue_id);
    at = put_decimal(put_literal(at, ",\"reviveTime\":"), cursor->now + pop->invisible);
    at = put_decimal(put_literal(at, ",\"ro\":0,\"so\":"), item->start);
    at = put_bytes(put_literal(at, ",\"sp\":false,\"t\":\""), pop->topic.at, pop->topic.size);
    at = put_literal(at, "\"}");
    RevivedRecord revived = {
        .body = {start, at - start}, .topic = pop->topic, .group = pop->group, .broker_name = broker, .queue_id = item->queue_id,
        .offset = item->start, .pop_time = cursor->now, .deliver = cursor->now + pop->invisible - AHEAD_MS,
        .revive_queue = revive_queue, .key_end = "@ck", .tag = "ck"};
    put_revive_properties(self, at, &revived, cursor->now, &record);
    return append_record(self, timer, &record, cursor);
}

/* Append the check points of all queues; 1 if done, 0 if the pop is for the Python path, -1 for an error. */
static int append_check_points(Batcher *self, const Pop *pop, const PopItem *items, Py_ssize_t count, int64_t revive_queue,
                               LogCursor *cursor) {
    const char *topic = DEFERRAL_TOPICS[DEFER_TIMER];
    QueueRoute *timer = find_route(self, (const uint8_t *)topic, strlen(topic), 0, 1);
    if (timer == NULL) return miss_route(self, topic, strlen(topic), 0, 1, 1);
    int64_t size = check_point_room(self, pop);
    if (size > self->max_body || size > self->max_properties) return 0;
    size += 200 + PyBytes_GET_SIZE(timer->field) + 2 * PyBytes_GET_SIZE(self->store_host);
    /* Once the first is appended there must be room for all. */
    int can = has_room_for(self, timer, count * size, 0, cursor);
    for (Py_ssize_t n = 0; can > 0 && n < count; n++) can = append_check_point(self, timer, pop, &items[n], revive_queue, cursor);
    return can;
}

/* Responses */

/* Write startOffsetInfo and msgOffsetInfo; -1 for an error. */
static int put_infos(PopServer *self, const PopItem *items, Py_ssize_t count) {
    self->starts.size = self->offset_info.size = 0;
    for (Py_ssize_t n = 0; n < count; n++) {
        uint8_t *start = buffer_extend(&self->starts, 48), *at = start;
        if (start == NULL) return -1;
        at = put_decimal(put_literal(at, n > 0 ? ";0 " : "0 "), items[n].queue_id);
        at = put_decimal(put_literal(at, " "), items[n].start);
        self->starts.size -= start + 48 - at;
        Py_ssize_t room = 28 + 20 * items[n].count;
        start = at = buffer_extend(&self->offset_info, room);
        if (start == NULL) return -1;
        at = put_decimal(put_literal(at, n > 0 ? ";0 " : "0 "), items[n].queue_id);
        for (int64_t one = 0; one < items[n].count; one++)
            at = put_decimal(put_literal(at, one > 0 ? "," : " "), items[n].offsets[one]);
        self->offset_info.size -= start + room - at;
    }
    return 0;
}

static PyObject *pop_answer(PopServer *self, const Pop *pop, const PopItem *items, Py_ssize_t count, int64_t revive_queue,
                            int64_t rest, int64_t now) {
    PyObject *parts = self->batcher.json_parts;
    ByteBuffer *head = &self->batcher.answers;
    if (put_infos(self, items, count) < 0) return NULL;
    head->size = 0;
    uint8_t *start = buffer_extend(head, PREFIX_SIZE + parts_size(parts) + self->starts.size + self->offset_info.size + 5 * 24);
    if (start == NULL) return NULL;
    uint8_t *at = put_decimal(put_part(start + PREFIX_SIZE, parts, 0), now);
    at = put_decimal(put_part(at, parts, 1), pop->invisible);
    at = put_decimal(put_part(at, parts, 2), revive_queue);
    at = put_decimal(put_part(at, parts, 3), rest);
    at = put_bytes(put_part(at, parts, 4), self->starts.data, self->starts.size);
    at = put_bytes(put_part(at, parts, 5), self->offset_info.data, self->offset_info.size);
    at = put_decimal(put_part(at, parts, 6), pop->opaque);
    at = put_part(at, parts, 7);
    end_frame(start, at, 0);
    put32(start, at - start - 4 + self->records.size);
    PyObject *answer = PyBytes_FromStringAndSize(NULL, at - start + self->records.size);
    if (answer == NULL) return NULL;
    uint8_t *out = put_bytes((uint8_t *)PyBytes_AS_STRING(answer), start, at - start);
    put_bytes(out, self->records.data, self->records.size);
    return answer;
}

static PyObject *popped_queues(const PopItem *items, Py_ssize_t count) {
    PyObject *list = PyList_New(count);
    for (Py_ssize_t n = 0; list != NULL && n < count; n++) {
        PyObject *one = Py_BuildValue("(LLLL)", (long long)items[n].queue_id, (long long)items[n].following,
                                      (long long)items[n].count, (long long)items[n].size);
        if (one == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, n, one);
    }
    return list;
}

/* Serve one pop; a new reference to its result, None if it is for the Python path, or NULL for an error. */
static PyObject *serve_pop(PopServer *self, const Pop *pop, Py_ssize_t frame_size, int64_t revive_queue, int64_t draw,
                           const LogWindow *window, LogCursor *cursor) {
    PyObject *route = find_pop_route(self, pop); /* borrowed */
    if (route == NULL) return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
    Py_INCREF(route); /* the state is Python code */
    PyObject *queues = PyTuple_GET_ITEM(route, 0), *names = PyTuple_GET_ITEM(route, 1), *result = NULL;
    PyObject *offsets = PyObject_CallOneArg(self->state, names);
    if (offsets != NULL && PyDict_Check(offsets)) {
        int64_t rest;
        Py_ssize_t count = pop_topic(self, pop, queues, PyTuple_GET_ITEM(route, 2), offsets, draw, &rest, window);
        const PopItem *items = (const PopItem *)self->found.data;
        if (count > 0) count *= append_check_points(&self->batcher, pop, items, count, revive_queue, cursor);
        if (count > 0) {
            PyObject *answer = pop_answer(self, pop, items, count, revive_queue, rest, cursor->now);
            PyObject *entered = answer == NULL ? NULL : enter_routes(&self->batcher, 1);
            if (entered == NULL) Py_XDECREF(answer);
            else
                result = make_result(RESULT_POPPED, from_int(frame_size), from_int(count), from_int(cursor->position), answer,
                                     entered, buffer_bytes(&self->batcher.hashes), buffer_bytes(&self->batcher.offsets),
                                     from_int(cursor->last_offset), Py_NewRef(names), from_int(rest), popped_queues(items, count));
        }
    }
    Py_XDECREF(offsets);
    Py_DECREF(route);
    if (result == NULL && !PyErr_Occurred()) result = Py_NewRef(Py_None);
    return result;
}

/* pop(data, revive_queue, draw, first, end, window, checked_from, file_size, buffer_at, log, position, limit, base, now,
 * has_listeners) */
static PyObject *PopServer_pop(PopServer *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 15 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "pop(data, revive_queue, draw, first, end, window, checked_from, file_size, buffer_at, "
                                         "log, position, limit, base, now, has_listeners)");
        return NULL;
    }
    int64_t revive_queue = PyLong_AsLongLong(args[1]), draw = PyLong_AsLongLong(args[2]);
    LogWindow window = {PyLong_AsLongLong(args[3]), PyLong_AsLongLong(args[4]), PyLong_AsLongLong(args[5]),
                        PyLong_AsLongLong(args[6]), PyLong_AsLongLong(args[7]), args[8], NULL, 0};
    if (PyErr_Occurred()) return NULL;
    if (draw < 0 || revive_queue < 0 || window.file_size <= 0) {
        PyErr_SetString(PyExc_ValueError, "draw and revive_queue are not negative, and log files have a size");
        return NULL;
    }
    LogCursor cursor = {0};
    Py_buffer log;
    if (begin_batch(&self->batcher, args + 9, &log, &cursor) < 0) return NULL;
    const uint8_t *frame = (uint8_t *)PyBytes_AS_STRING(args[0]);
    Py_ssize_t there = PyBytes_GET_SIZE(args[0]);
    PyObject *result = NULL;
    /* JSON without a body, as all clients send it: the code has no room in a binary header. */
    if (there >= PREFIX_SIZE) {
        uint32_t length = get32(frame), header_size = get32(frame + 4);
        Request request;
        Pop pop;
        if (length <= INT32_MAX && header_size <= MAX_HEADER && header_size + 4 == length && there - 4 >= (Py_ssize_t)length &&
            read_json(frame + PREFIX_SIZE, frame + PREFIX_SIZE + header_size, self->batcher.languages, which_of_pop, &request) &&
            read_pop(self, &request, &pop))
            result = serve_pop(self, &pop, 4 + (Py_ssize_t)length, revive_queue, draw, &window, &cursor);
    }
    PyBuffer_Release(&log);
    untouch(&self->batcher);
    if (result == NULL && !PyErr_Occurred()) result = Py_NewRef(Py_None);
    return result;
}

static PyObject *PopServer_add_pop_route(PopServer *self, PyObject *args) {
    PyObject *key, *queues, *names, *codes;
    if (!PyArg_ParseTuple(args, "SO!OO", &key, &PyTuple_Type, &queues, &names, &codes)) return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(queues);
    int fits = count > 0 && count <= MAX_QUEUES_POPPED &&
               (codes == Py_None || (PyBytes_Check(codes) && PyBytes_GET_SIZE(codes) % 4 == 0));
    for (Py_ssize_t n = 0; fits && n < count; n++) {
        PyObject *one = PyTuple_GET_ITEM(queues, n);
        fits = PyTuple_Check(one) && PyTuple_GET_SIZE(one) == 2 && PyObject_TypeCheck(PyTuple_GET_ITEM(one, 0), &QueueStateType);
    }
    if (!fits) {
        PyErr_SetString(PyExc_TypeError, "a route needs pairs of a native QueueState and its read, and codes of four bytes each or None");
        return NULL;
    }
    PyObject *route = PyTuple_Pack(3, queues, names, codes);
    int is_set = route == NULL ? -1 : PyDict_SetItem(self->pop_routes, key, route);
    Py_XDECREF(route);
    if (is_set < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *PopServer_close_pop_route(PopServer *self, PyObject *key) {
    if (PyDict_SetItem(self->pop_routes, key, Py_None) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *PopServer_clear_routes(PopServer *self, PyObject *unused) {
    PyDict_Clear(self->pop_routes);
    return Batcher_clear_routes(&self->batcher, unused);
}

static PyObject *PopServer_get_route_count(PopServer *self, void *Py_UNUSED(unused)) {
    return PyLong_FromSsize_t(PyDict_GET_SIZE(self->pop_routes));
}

static int PopServer_init(PopServer *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"languages", "json_parts", "store_host", "max_body", "max_properties", "is_indexing", "crc32",
                            "revive_topic", "broker_name", "precision", "longest", "most", "most_bytes", "filtered", "goes_down", "state", NULL};
    PyObject *languages, *json_parts, *store_host, *crc32, *revive_topic, *broker_name, *state;
    long long precision, longest, most, most_bytes, filtered;
    Batcher *batcher = &self->batcher;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$O!O!SnnpOSSLLLLLpO", names, &PyTuple_Type, &languages, &PyTuple_Type,
                                     &json_parts, &store_host, &batcher->max_body, &batcher->max_properties,
                                     &batcher->is_indexing, &crc32, &revive_topic, &broker_name, &precision, &longest, &most,
                                     &most_bytes, &filtered, &self->goes_down, &state))
        return -1;
    if (!are_bytes(languages) || !are_bytes(json_parts)) return -1;
    if (PyTuple_GET_SIZE(json_parts) != 8 || precision <= 0 || most <= 0) {
        PyErr_SetString(PyExc_ValueError, "a response has seven values; precision and most are positive");
        return -1;
    }
    PyObject *routes = PyDict_New();
    if (routes == NULL) return -1;
    Py_XSETREF(self->pop_routes, routes);
    Py_XSETREF(self->state, Py_NewRef(state));
    Py_XSETREF(batcher->languages, Py_NewRef(languages));
    Py_XSETREF(batcher->json_parts, Py_NewRef(json_parts));
    Py_XSETREF(batcher->store_host, Py_NewRef(store_host));
    Py_XSETREF(batcher->crc32, Py_NewRef(crc32));
    Py_XSETREF(batcher->revive_topic, Py_NewRef(revive_topic));
    Py_XSETREF(batcher->broker_name, Py_NewRef(broker_name));
    batcher->precision = precision;
    batcher->longest = longest;
    self->most = most;
    self->most_bytes = most_bytes;
    self->filtered = filtered;
    return 0;
}

static int PopServer_traverse(PopServer *self, visitproc visit, void *arg) {
    Py_VISIT(self->pop_routes);
    Py_VISIT(self->state);
    return Batcher_traverse(&self->batcher, visit, arg);
}

static int PopServer_clear(PopServer *self) {
    Py_CLEAR(self->pop_routes);
    Py_CLEAR(self->state);
    return Batcher_clear(&self->batcher);
}

static void PopServer_dealloc(PopServer *self) {
    PyObject_GC_UnTrack(self);
    PopServer_clear(self);
    buffer_free(&self->units);
    buffer_free(&self->all_units);
    buffer_free(&self->skipped);
    buffer_free(&self->records);
    buffer_free(&self->found);
    buffer_free(&self->starts);
    buffer_free(&self->offset_info);
    PyObject_GC_Track(self); /* Batcher_dealloc ends the tracking */
    Batcher_dealloc(&self->batcher);
}

static PyMethodDef PopServer_methods[] = {
    {"pop", (PyCFunction)(void (*)(void))PopServer_pop, METH_FASTCALL, "Serve the pop that data begins with."},
    {"add_route", (PyCFunction)Batcher_add_route, METH_VARARGS, "Open a route to a queue."},
    {"add_pop_route", (PyCFunction)PopServer_add_pop_route, METH_VARARGS, "Open a route for a kind of pop."},
    {"close_pop_route", (PyCFunction)PopServer_close_pop_route, METH_O, "Leave a kind of pop to the Python path."},
    {"clear_routes", (PyCFunction)PopServer_clear_routes, METH_NOARGS, "Close all routes."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef PopServer_getset[] = {
    {"missing_route", (getter)Batcher_get_missing_route, NULL, "The route for whose lack the last call ended, or None.", NULL},
    {"route_count", (getter)PopServer_get_route_count, NULL, "Number of routes for kinds of pops.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject PopServerType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.native._native.PopServer",
    .tp_doc = "Serves pops from topics that have a route.",
    .tp_basicsize = sizeof(PopServer),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)PopServer_init,
    .tp_dealloc = (destructor)PopServer_dealloc,
    .tp_traverse = (traverseproc)PopServer_traverse,
    .tp_clear = (inquiry)PopServer_clear,
    .tp_methods = PopServer_methods,
    .tp_getset = PopServer_getset,
};
