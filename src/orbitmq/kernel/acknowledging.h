/* Acknowledgements of popped messages into the log, as they come from a connection: the compiled twin of
 * broker/pop_ack.py and of what broker/pop_checkpoints.py writes. What would be refused, or is not to wait, ends a run.
 */
#ifndef ORBITMQ_ACKNOWLEDGING_H
#define ORBITMQ_ACKNOWLEDGING_H
#include "storing.h"

#define ACK_MESSAGE 200051
#define ORDERLY 999
#define RECEIPT_PARTS 8

enum { ACK_GROUP, ACK_TOPIC, ACK_QUEUE, ACK_RECEIPT, ACK_OFFSET, ACK_FIELDS };

typedef struct {
    Text group, topic, broker_name;
    int64_t queue_id, offset, start, pop_time, invisible, revive_queue;
} Ack;

/* Messages of one pop that one group settled in one queue. */
typedef struct {
    Py_ssize_t lane;
    Text group;
    int64_t pop_time, count;
} Settled;

static int which_of_ack(Text name) {
    switch (name.size) {
        case 5: return is_text(name, "topic") ? ACK_TOPIC : -1;
        case 6: return is_text(name, "offset") ? ACK_OFFSET : -1;
        case 7: return is_text(name, "queueId") ? ACK_QUEUE : -1;
        case 9: return is_text(name, "extraInfo") ? ACK_RECEIPT : -1;
        case 13: return is_text(name, "consumerGroup") ? ACK_GROUP : -1;
        default: return -1;
    }
}

/* What a consumer shows for its message; 0 if a part of it is unusual. */
static int read_receipt(Text receipt, Ack *ack) {
    Text parts[RECEIPT_PARTS];
    int64_t unused;
    const uint8_t *at = receipt.at, *end = at + receipt.size;
    for (int n = 0; n < RECEIPT_PARTS; n++) {
        if (at > end) return 0;
        const uint8_t *blank = memchr(at, ' ', end - at);
        if (blank == NULL) blank = end;
        parts[n] = (Text){at, blank - at};
        at = blank + 1;
    }
    ack->broker_name = parts[5];
    return number_of(parts[0], 0, &ack->start) && number_of(parts[1], 0, &ack->pop_time) &&
           number_of(parts[2], 0, &ack->invisible) && number_of(parts[3], 0, &ack->revive_queue) &&
           number_of(parts[6], 0, &unused) && number_of(parts[7], 0, &unused);
}

static int read_ack(const Request *request, Ack *ack) {
    const Text *fields = request->fields;
    if (request->code != ACK_MESSAGE || request->escaped || request->present != (1u << ACK_FIELDS) - 1) return 0;
    ack->group = fields[ACK_GROUP];
    ack->topic = fields[ACK_TOPIC];
    return int32_of(fields[ACK_QUEUE], &ack->queue_id) && ack->queue_id >= 0 &&
           number_of(fields[ACK_OFFSET], 0, &ack->offset) && read_receipt(fields[ACK_RECEIPT], ack);
}

static int has_offset(const Lane *home, int64_t offset) {
    const QueueEnd *queue = (QueueEnd *)home->queue->owner;
    return queue->min_offset <= offset && offset <= home->queue->end;
}

static int note_settled(Runs *self, Lane *home, const Ack *ack) {
    Py_ssize_t number = home - self->lanes, count = self->settled.size / sizeof(Settled);
    Settled *all = (Settled *)self->settled.data;
    for (Py_ssize_t n = count; n-- > 0 && n >= count - 8;)
        if (all[n].lane == number && all[n].pop_time == ack->pop_time && all[n].group.size == ack->group.size &&
            memcmp(all[n].group.at, ack->group.at, ack->group.size) == 0) {
            all[n].count++;
            return 0;
        }
    Settled one = {number, ack->group, ack->pop_time, 1};
    uint8_t *at = pile_more(&self->settled, sizeof one);
    if (at == NULL) return -1;
    memcpy(at, &one, sizeof one);
    return 0;
}

/* The record of an acknowledgement: its body and its properties, in the order in which RocketMQ has them. */
static int write_ack(Runs *self, const Ack *ack, int64_t deliver, int64_t now, Record *record) {
    Text revive = {(uint8_t *)PyBytes_AS_STRING(self->revive_topic), PyBytes_GET_SIZE(self->revive_topic)};
    Py_ssize_t names = ack->topic.size + ack->group.size + ack->broker_name.size;
    self->text.size = 0;
    uint8_t *start = pile_more(&self->text, 2 * names + revive.size + 500), *at = start;
    if (start == NULL) return -1;
    at = put_decimal(put_word(at, "{\"ao\":"), ack->offset);
    at = put_text(put_word(at, ",\"bn\":\""), ack->broker_name.at, ack->broker_name.size);
    at = put_text(put_word(at, "\",\"c\":\""), ack->group.at, ack->group.size);
    at = put_decimal(put_word(at, "\",\"pt\":"), ack->pop_time);
    at = put_decimal(put_word(at, ",\"q\":"), ack->queue_id);
    at = put_decimal(put_word(at, ",\"so\":"), ack->start);
    at = put_text(put_word(at, ",\"t\":\""), ack->topic.at, ack->topic.size);
    at = put_word(at, "\"}");
    record->body = (Text){start, at - start};
    uint8_t *properties = at;
    at = put_text(put_word(at, "REAL_TOPIC\1"), revive.at, revive.size);
    at = put_decimal(put_word(at, "\2TIMER_DELIVER_MS\1"), deliver);
    uint8_t *key = at = put_word(at, "\2UNIQ_KEY\1");
    at = put_text(at, ack->topic.at, ack->topic.size);
    *at++ = '@';
    at = put_decimal(at, ack->queue_id);
    *at++ = '@';
    at = put_decimal(at, ack->offset);
    *at++ = '@';
    at = put_text(at, ack->group.at, ack->group.size);
    *at++ = '@';
    at = put_decimal(at, ack->pop_time);
    *at++ = '@';
    at = put_text(at, ack->broker_name.at, ack->broker_name.size);
    at = put_word(at, "@ack");
    memset(&record->known, 0, sizeof record->known);
    record->known.unique_key = (Text){key, at - key};
    at = put_word(at, "\2TAGS\1");
    record->known.tags = (Text){at, 3};
    at = put_decimal(put_word(at, "ack\2TIMER_OUT_MS\1"), (deliver - 1) / self->precision * self->precision);
    at = put_decimal(put_word(at, "\2REAL_QID\1"), ack->revive_queue);
    *at++ = 2;
    record->properties[0] = (Text){properties, at - properties};
    record->properties[1] = record->properties[2] = (Text){at, 0};
    record->flag = record->sys_flag = record->reconsumed = 0;
    record->born = now;
    record->born_host = (Text){(uint8_t *)PyBytes_AS_STRING(self->store_host), PyBytes_GET_SIZE(self->store_host)};
    record->code = tags_code(&record->known);
    return 0;
}

static int acknowledge_one(Runs *self, const uint8_t *header, Py_ssize_t size, Place *place, Request *request) {
    Ack ack;
    Record record;
    if (!read_json(header, header + size, self->languages, which_of_ack, request)) return 0;
    if (!read_ack(request, &ack) || request->flag & ~(int64_t)ONEWAY) return 0;
    int64_t deliver = ack.pop_time + ack.invisible;
    if (ack.revive_queue >= self->revive_queues || ack.revive_queue == ORDERLY || deliver <= place->now ||
        deliver - place->now > self->longest)
        return 0;
    Lane *home = find_lane(self, ack.topic.at, ack.topic.size, ack.queue_id, 0);
    if (home == NULL) return want_lane(self, (const char *)ack.topic.at, ack.topic.size, ack.queue_id, 0, 1);
    const char *topic = PARKING_TOPICS[TIMED];
    Lane *lane = find_lane(self, (const uint8_t *)topic, strlen(topic), 0, 1);
    if (lane == NULL) return want_lane(self, topic, strlen(topic), 0, 1, 1);
    if (!has_offset(home, ack.offset)) return 0;
    if (write_ack(self, &ack, deliver, place->now, &record) < 0) return -1;
    int stored = store(self, lane, &record, place);
    if (stored <= 0) return stored;
    return note_settled(self, home, &ack) < 0 ? -1 : 1;
}

static PyObject *take_settled(Runs *self) {
    Py_ssize_t count = self->settled.size / sizeof(Settled);
    Settled *all = (Settled *)self->settled.data;
    PyObject *list = PyList_New(count);
    for (Py_ssize_t n = 0; list != NULL && n < count; n++) {
        Lane *home = &self->lanes[all[n].lane];
        PyObject *one = Py_BuildValue("(OLs#LL)", home->topic, (long long)home->queue_id, (const char *)all[n].group.at,
                                      all[n].group.size, (long long)all[n].pop_time, (long long)all[n].count);
        if (one == NULL) Py_CLEAR(list);
        else PyList_SET_ITEM(list, n, one);
    }
    self->settled.size = 0;
    return list;
}

/* take(data, log, position, limit, base, now, is_heard): as SendRuns.take, with what was settled instead of half messages. */
static PyObject *Acks_take(Runs *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 7 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "take(data, log, position, limit, base, now, is_heard)");
        return NULL;
    }
    Place place = {0};
    Py_buffer log;
    if (begin_run(self, args + 1, &log, &place) < 0) return NULL;
    self->settled.size = 0;
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(args[0]), *at = start, *end = start + PyBytes_GET_SIZE(args[0]);
    long long messages = 0;
    int taken = 1;
    while (end - at >= PREFIX_SIZE) {
        uint32_t length = get32(at), header_size = get32(at + 4);
        /* In JSON and without a body, as all are. */
        if (length > INT32_MAX || header_size >> 24 || header_size + 4 != length || end - at - 4 < (Py_ssize_t)length) break;
        Request request;
        taken = acknowledge_one(self, at + PREFIX_SIZE, header_size, &place, &request);
        if (taken != 1) break;
        at += 4 + (Py_ssize_t)length;
        messages++;
        if (request.flag & ONEWAY) continue;
        Py_ssize_t before = self->answers.size;
        uint8_t *answer = pile_more(&self->answers, PREFIX_SIZE + parts_size(self->json_parts) + 20);
        if (answer == NULL) { taken = -1; break; }
        uint8_t *stop = put_decimal(put_part(answer + PREFIX_SIZE, self->json_parts, 0), request.opaque);
        stop = put_part(stop, self->json_parts, 1);
        self->answers.size = before + end_frame(answer, stop, 0);
    }
    PyBuffer_Release(&log);
    PyObject *result = NULL, *settled = take_settled(self);
    if (taken >= 0 && settled != NULL) {
        PyObject *entered = enter_lanes(self, 1);
        if (entered != NULL)
            result = Py_BuildValue("(nLLNNNNLO)", (Py_ssize_t)(at - start), messages, (long long)place.position,
                                   pile_bytes(&self->answers), entered, pile_bytes(&self->hashes),
                                   pile_bytes(&self->offsets), (long long)place.last_offset, settled);
    }
    Py_XDECREF(settled);
    untouch(self);
    return result;
}

#endif
