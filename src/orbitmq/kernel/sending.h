/* Sends from the bytes of connections into the log, in one pass: the compiled twin of the general path, which is
 * broker/send.py, store/appending.py and store/dispatch.py. Both make the same bytes of the same bytes.
 *
 * Everything that is unusual ends the run in front of it: nothing here decides what somebody has to be told.
 */
#ifndef ORBITMQ_SENDING_H
#define ORBITMQ_SENDING_H
#include "batches.h"
#include "parking.h"
#include "properties.h"
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

#define GROUP 64
#define APART 3 /* sends between two steps of fetching what one needs: about a microsecond */
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
    uint32_t hash; /* of the lane */
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
    /* Of what waits elsewhere somebody hears as soon as it is stored, and a hasty one is answered before others. */
    if (self->is_deferred && (wish.kind != PLAIN || known->is_hasty)) return 0;
    Lane *home = waiting->home, *lane = home;
    if (home == NULL || (wish.kind == PLAIN && home->queue == NULL))
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
    return put_answer(self, waiting->is_binary, send, &wish, known->unique_key, next_in(lane) - 1, place->last_offset) < 0 ? -1 : 1;
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

/* Let those of a group that were read somewhat before a number fetch what they need of their queues: while others are
 * read it comes from memory, little by little. All at once would be more than a processor waits for at a time. */
static void expect_earlier(const Runs *self, Waiting *group, int number, int count) {
    int at = number - APART;
    if (at >= 0 && at < count) expect_lane(self, group[at].hash);
    at -= APART;
    if (at >= 0 && at < count) {
        Waiting *one = &group[at];
        one->home = find_hashed_lane(self, one->hash, one->send.topic.at, one->send.topic.size, one->send.queue_id, 0);
        if (one->home != NULL) expect_queue(one->home);
    }
    at -= APART;
    if (at >= 0 && at < count && group[at].home != NULL) expect_tail(group[at].home);
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
        const Send *send = &group[count].send;
        group[count].hash = lane_hash(send->topic.at, send->topic.size, send->queue_id, 0);
        expect_signpost(self, group[count].hash);
        group[count++].end = frame->end;
        expect_earlier(self, group, count - 1, count);
    }
    for (int n = count; n < count + 3 * APART; n++) expect_earlier(self, group, n, count);
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

#endif
