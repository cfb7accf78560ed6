/* Lanes: the queues that sends may go to, and what each gets in one run. */
#ifndef ORBITMQ_LANES_H
#define ORBITMQ_LANES_H
#include "ends.h"

/* A line of the processor's cache: with many queues none is there, and this one is fetched for every message. The units
 * that a queue gets in a run are behind its tail until they are entered. */
typedef struct {
    _Alignas(CACHE_LINE) End *queue; /* NULL: there is no queue yet, but messages may wait for it elsewhere */
    PyObject *field; /* the topic with its length in front, as records have it */
    Tally *count; /* what its messages are counted by, or NULL: whoever has the run told counts them */
    PyObject *topic;
    int32_t queue_id;
    uint32_t magic;
    uint32_t prefix_hash; /* of the topic and "#", with which keys in the index begin */
    uint32_t requests; /* in this run */
    uint32_t halves; /* half messages for this place in this run, which are in another lane */
    uint16_t topic_size;
    char is_parking; /* for messages that wait for something, and not for what clients send to it */
    char is_touched;
    int64_t bytes; /* of the records of this run */
} Lane;

/* Where to look for a lane: its number, counted from 1, and its hash. Small, so that it stays in the cache. */
typedef struct { uint32_t hash, number; } Signpost;

typedef struct {
    PyObject_HEAD
    Lane *lanes;
    Py_ssize_t lane_room, lane_count;
    Signpost *signposts; /* open addressing; a power of two, at most half full */
    Py_ssize_t signpost_room;
    Py_ssize_t *touched;
    Py_ssize_t touched_room, touched_count;
    PyObject *languages, *added, *store_host, *json_parts, *binary_parts, *timed_json_parts, *timed_binary_parts, *crc32;
    PyObject *delays, *broker_name, *revive_topic, *batch_json, *batch_binary, *host_text;
    int64_t precision, longest, revive_queues;
    long language, version;
    int64_t kept_flags;
    Py_ssize_t max_body, max_properties;
    int is_indexing;
    int is_heard; /* whether somebody wants to hear of every queue that gets something */
    int is_deferred; /* records are shown later, by whoever walks the log: queues get their numbers only, the index nothing */
    Pile answers, hashes, offsets, text, behind, half_places, settled, items;
    PyObject *missing;
} Runs;

static uint32_t lane_hash(const uint8_t *topic, Py_ssize_t size, int64_t queue_id, int is_parking) {
    uint64_t hash = hash_on(17 + is_parking, topic, size);
    hash = (hash ^ (uint64_t)queue_id * 0x9E3779B97F4A7C15ull) * 0xD6E8FEB86659FD93ull;
    return hash >> 32;
}

static Lane *find_hashed_lane(const Runs *self, uint32_t hash, const uint8_t *topic, Py_ssize_t size, int64_t queue_id,
                              int is_parking) {
    if (self->signpost_room == 0) return NULL;
    for (Py_ssize_t at = hash & (self->signpost_room - 1);; at = (at + 1) & (self->signpost_room - 1)) {
        if (self->signposts[at].number == 0) return NULL;
        if (self->signposts[at].hash != hash) continue;
        Lane *lane = &self->lanes[self->signposts[at].number - 1];
        if (lane->queue_id == queue_id && lane->topic_size == size && lane->is_parking == is_parking &&
            memcmp(PyBytes_AS_STRING(lane->field) + PyBytes_GET_SIZE(lane->field) - size, topic, size) == 0)
            return lane;
    }
}

static Lane *find_lane(const Runs *self, const uint8_t *topic, Py_ssize_t size, int64_t queue_id, int is_parking) {
    return find_hashed_lane(self, lane_hash(topic, size, queue_id, is_parking), topic, size, queue_id, is_parking);
}

/* Let the processor fetch what a message will need, in steps, each of which goes by what the one before has fetched. */

static void expect_signpost(const Runs *self, uint32_t hash) {
    if (self->signpost_room > 0) __builtin_prefetch(&self->signposts[hash & (self->signpost_room - 1)]);
}

static void expect_lane(const Runs *self, uint32_t hash) {
    if (self->signpost_room == 0) return;
    Signpost first = self->signposts[hash & (self->signpost_room - 1)];
    if (first.number > 0) __builtin_prefetch(&self->lanes[first.number - 1], 1);
}

static void expect_queue(const Lane *lane) {
    __builtin_prefetch(lane->queue, 1);
    __builtin_prefetch((const char *)lane->queue + CACHE_LINE, 1);
    __builtin_prefetch(lane->count, 1);
}

/* Of most messages nothing goes to the tail: only of those for which there is no more room among the fresh ones. */
static void expect_tail(const Lane *lane) {
    const End *queue = lane->queue;
    if (queue == NULL || queue->tail == NULL || queue->fresh_size + UNIT_SIZE <= FRESH_BYTES) return;
    __builtin_prefetch(queue->tail + queue->tail_size, 1);
    __builtin_prefetch(queue->tail + queue->tail_size + FRESH_BYTES + UNIT_SIZE - 1, 1);
}

/* What was not entered is forgotten. */
static void untouch(Runs *self) {
    for (Py_ssize_t n = 0; n < self->touched_count; n++) {
        Lane *lane = &self->lanes[self->touched[n]];
        lane->is_touched = 0;
        forget_pending(lane->queue);
    }
    self->touched_count = 0;
}

static void drop_lanes(Runs *self) {
    untouch(self);
    Lane *lanes = self->lanes;
    Py_ssize_t count = self->lane_count;
    free(self->signposts);
    self->lanes = NULL;
    self->signposts = NULL;
    self->lane_room = self->lane_count = self->signpost_room = 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        if (lanes[at].queue != NULL) Py_DECREF(lanes[at].queue->owner);
        if (lanes[at].count != NULL) Py_DECREF(lanes[at].count->owner);
        Py_DECREF(lanes[at].topic);
        Py_DECREF(lanes[at].field);
    }
    free(lanes);
}

static PyObject *Runs_clear_lanes(Runs *self, PyObject *Py_UNUSED(unused)) {
    drop_lanes(self);
    Py_RETURN_NONE;
}

static void put_signpost(Runs *self, uint32_t hash, Py_ssize_t number) {
    Py_ssize_t at = hash & (self->signpost_room - 1);
    while (self->signposts[at].number != 0) at = (at + 1) & (self->signpost_room - 1);
    self->signposts[at] = (Signpost){hash, (uint32_t)number};
}

/* Room for twice as many lanes; -1 for an error. */
static int more_lanes(Runs *self) {
    Py_ssize_t room = self->lane_room ? 2 * self->lane_room : 32;
    Lane *lanes = take_lines(room * sizeof *lanes);
    Signpost *signposts = take_blank_lines(2 * room * sizeof *signposts);
    if (lanes == NULL || signposts == NULL) {
        free(lanes);
        free(signposts);
        PyErr_NoMemory();
        return -1;
    }
    if (self->lane_count > 0) memcpy(lanes, self->lanes, self->lane_count * sizeof *lanes);
    free(self->lanes);
    Signpost *before = self->signposts;
    Py_ssize_t room_before = self->signpost_room;
    self->lanes = lanes;
    self->lane_room = room;
    self->signposts = signposts;
    self->signpost_room = 2 * room;
    for (Py_ssize_t at = 0; at < room_before; at++)
        if (before[at].number != 0) put_signpost(self, before[at].hash, before[at].number);
    free(before);
    return 0;
}

/* Let a lane lead to a queue and a counter, each of which may be None. */
static void join(Lane *lane, PyObject *queue, PyObject *counted) {
    lane->queue = queue == Py_None ? NULL : end_of(Py_NewRef(queue));
    lane->count = counted == Py_None ? NULL : tally_of(Py_NewRef(counted));
}

static PyObject *Runs_add_lane(Runs *self, PyObject *args) {
    PyObject *topic, *field, *queue, *counted = Py_None;
    long long queue_id;
    unsigned int magic;
    int is_parking;
    if (!PyArg_ParseTuple(args, "USLIOp|O", &topic, &field, &queue_id, &magic, &queue, &is_parking, &counted)) return NULL;
    if ((queue != Py_None && !PyObject_TypeCheck(queue, &QueueEndType)) ||
        (counted != Py_None && !PyObject_TypeCheck(counted, &CountType))) {
        PyErr_SetString(PyExc_TypeError, "a lane is for a queue with an end, and a counter, that are the kernel's");
        return NULL;
    }
    Py_ssize_t size;
    const uint8_t *name = (const uint8_t *)PyUnicode_AsUTF8AndSize(topic, &size);
    if (name == NULL) return NULL;
    if (!PyUnicode_IS_ASCII(topic) || PyBytes_GET_SIZE(field) < size || size > UINT16_MAX || queue_id != (int32_t)queue_id) {
        PyErr_SetString(PyExc_ValueError, "a lane is for a topic of ASCII, its field in records, and the number of a queue");
        return NULL;
    }
    uint32_t hash = lane_hash(name, size, queue_id, is_parking);
    Lane *there = find_hashed_lane(self, hash, name, size, queue_id, is_parking);
    if (there != NULL) {
        there->magic = magic;
        Py_SETREF(there->field, Py_NewRef(field));
        PyObject *queue_before = there->queue == NULL ? NULL : there->queue->owner;
        PyObject *count_before = there->count == NULL ? NULL : there->count->owner;
        join(there, queue, counted);
        Py_XDECREF(queue_before);
        Py_XDECREF(count_before);
        Py_RETURN_NONE;
    }
    if (self->lane_count == self->lane_room && more_lanes(self) < 0) return NULL;
    Lane lane = {0};
    join(&lane, queue, counted);
    lane.topic = Py_NewRef(topic);
    lane.field = Py_NewRef(field);
    lane.topic_size = size;
    lane.queue_id = queue_id;
    lane.is_parking = is_parking;
    lane.magic = magic;
    lane.prefix_hash = hash_on(hash_on(0, name, size), (const uint8_t *)"#", 1);
    self->lanes[self->lane_count++] = lane;
    put_signpost(self, hash, self->lane_count);
    Py_RETURN_NONE;
}

/* What a lane's queue has with what a run has put behind it: the number of the next record that is stored, and of the
 * next that is shown. */

static int64_t next_in(const Lane *lane) {
    const End *queue = lane->queue;
    return queue->next_offset + queue->pending / UNIT_SIZE;
}

static int64_t next_shown(const Lane *lane) {
    const End *queue = lane->queue;
    return queue->end + queue->pending / UNIT_SIZE;
}

/* Where the last record of the queue ends in the log. */
static int64_t stop_of(const Lane *lane) {
    const End *queue = lane->queue;
    if (queue->pending == 0) return queue->max_physical;
    const uint8_t *last = pending_of(lane->queue) + queue->pending - UNIT_SIZE;
    return (int64_t)(get64(last) + get32(last + 8));
}

static uint8_t *unit_room(const Lane *lane) { return room_for_unit(lane->queue, UNIT_SIZE); }

static void put_unit(uint8_t *unit, int64_t offset, uint32_t size, int64_t code) {
    put64(unit, offset);
    put32(unit + 8, size);
    put64(unit + 12, code);
}

/* Count a record, whose unit is behind the tail if it is shown at once. */
static void count_record(Lane *lane, uint32_t size) {
    lane->bytes += size;
    lane->queue->pending += UNIT_SIZE;
}

/* Whether readers see all records of a queue, and one that is put at the end of the log is behind them. */
static int is_in_step(const Lane *lane, int64_t log_end) {
    const End *queue = lane->queue;
    return queue->next_offset == queue->end && queue->max_physical <= log_end;
}

/* 1 if the queue can get records in this run, 0 if not, -1 for an error. */
static int touch(Runs *self, Lane *lane) {
    if (lane->queue->pending) return 0; /* by way of another lane */
    if (self->touched_count == self->touched_room) {
        Py_ssize_t room = self->touched_room ? 2 * self->touched_room : 64;
        Py_ssize_t *touched = PyMem_Realloc(self->touched, room * sizeof *touched);
        if (touched == NULL) { PyErr_NoMemory(); return -1; }
        self->touched = touched;
        self->touched_room = room;
    }
    self->touched[self->touched_count++] = lane - self->lanes;
    lane->is_touched = 1;
    lane->requests = 0;
    lane->bytes = 0;
    return 1;
}

#endif
