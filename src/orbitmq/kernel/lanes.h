/* Lanes: the queues that sends may go to, and what each gets in one run. */
#ifndef ORBITMQ_LANES_H
#define ORBITMQ_LANES_H
#include "ends.h"
#include <stdlib.h>
#include <sys/mman.h>

#define LARGE_PAGE ((size_t)2 << 20)
#define TAIL_BYTES 4096 /* a tail of this size is to be written out: that of store/unit_files.py */

/* What every message needs comes first: with many queues none of it is in the processor's cache. */
typedef struct {
    PyObject *queue; /* NULL: the place is free; None: there is no queue yet, but messages may wait for it elsewhere */
    PyObject *field; /* the topic with its length in front, as records have it */
    Py_ssize_t topic_size;
    int64_t queue_id;
    uint32_t hash;
    uint32_t magic;
    uint32_t prefix_hash; /* of the topic and "#", with which keys in the index begin */
    char is_parking; /* for messages that wait for something, and not for what clients send to it */
    char is_touched;
    int64_t first, next, stop, bytes, code, requests;
    Pile units;
    PyObject *count; /* what its messages are counted by, or None: whoever has the run told counts them */
    PyObject *topic;
    int64_t halves; /* half messages for this place in one run, which are in another lane */
} Lane;

typedef struct {
    PyObject_HEAD
    Lane *lanes; /* open addressing; a power of two, at most half full */
    Py_ssize_t lane_room, lane_count;
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
    Pile answers, hashes, offsets, text, behind, half_places, settled, items;
    PyObject *missing;
} Runs;

static uint32_t lane_hash(const uint8_t *topic, Py_ssize_t size, int64_t queue_id, int is_parking) {
    uint64_t hash = hash_on(17 + is_parking, topic, size);
    hash = (hash ^ (uint64_t)queue_id * 0x9E3779B97F4A7C15ull) * 0xD6E8FEB86659FD93ull;
    return hash >> 32;
}

static Lane *find_lane(Runs *self, const uint8_t *topic, Py_ssize_t size, int64_t queue_id, int is_parking) {
    if (self->lane_room == 0) return NULL;
    uint32_t hash = lane_hash(topic, size, queue_id, is_parking);
    for (Py_ssize_t at = hash & (self->lane_room - 1);; at = (at + 1) & (self->lane_room - 1)) {
        Lane *lane = &self->lanes[at];
        if (lane->queue == NULL) return NULL;
        if (lane->hash == hash && lane->queue_id == queue_id && lane->topic_size == size && lane->is_parking == is_parking &&
            memcmp(PyBytes_AS_STRING(lane->field) + PyBytes_GET_SIZE(lane->field) - size, topic, size) == 0)
            return lane;
    }
}

/* Let the processor fetch where a lane will be found, and then what is behind it. */
static void expect_lane(const Runs *self, const uint8_t *topic, Py_ssize_t size, int64_t queue_id) {
    if (self->lane_room == 0) return;
    const char *lane = (const char *)&self->lanes[lane_hash(topic, size, queue_id, 0) & (self->lane_room - 1)];
    __builtin_prefetch(lane);
    __builtin_prefetch(lane + 64, 1);
    __builtin_prefetch(lane + 128, 1);
}

static void expect_queue(const Lane *lane) {
    __builtin_prefetch((const char *)lane->queue, 1);
    __builtin_prefetch((const char *)lane->queue + 64, 1);
    __builtin_prefetch(lane->units.data, 1);
}

static void drop_lanes(Runs *self) {
    for (Py_ssize_t at = 0; at < self->lane_room; at++) {
        Lane *lane = &self->lanes[at];
        Py_CLEAR(lane->queue);
        Py_CLEAR(lane->count);
        Py_CLEAR(lane->topic);
        Py_CLEAR(lane->field);
        pile_free(&lane->units);
    }
    free(self->lanes);
    self->lanes = NULL;
    self->lane_room = self->lane_count = 0;
}

static PyObject *Runs_clear_lanes(Runs *self, PyObject *Py_UNUSED(unused)) {
    drop_lanes(self);
    Py_RETURN_NONE;
}

/* So many free places; NULL if there is no memory. Those of thousands of queues are in large pages where the system has
 * some: a place anywhere among small ones is also one that the processor has to look up the address of. */
static Lane *free_places(Py_ssize_t room) {
    size_t size = room * sizeof(Lane);
#ifdef MADV_HUGEPAGE
    if (size >= LARGE_PAGE) {
        void *lanes = NULL;
        size = (size + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE;
        if (posix_memalign(&lanes, LARGE_PAGE, size) != 0) return NULL;
        madvise(lanes, size, MADV_HUGEPAGE);
        return memset(lanes, 0, size);
    }
#endif
    return calloc(1, size);
}

static void place_lane(Runs *self, Lane lane) {
    Py_ssize_t at = lane.hash & (self->lane_room - 1);
    while (self->lanes[at].queue != NULL) at = (at + 1) & (self->lane_room - 1);
    self->lanes[at] = lane;
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
    if (!PyUnicode_IS_ASCII(topic) || PyBytes_GET_SIZE(field) < size) {
        PyErr_SetString(PyExc_ValueError, "a lane is for a topic of ASCII and its field in records");
        return NULL;
    }
    Lane *there = find_lane(self, name, size, queue_id, is_parking);
    if (there != NULL) {
        there->magic = magic;
        Py_SETREF(there->field, Py_NewRef(field));
        Py_SETREF(there->queue, Py_NewRef(queue));
        Py_SETREF(there->count, Py_NewRef(counted));
        Py_RETURN_NONE;
    }
    if (2 * (self->lane_count + 1) > self->lane_room) {
        Py_ssize_t room = self->lane_room ? 2 * self->lane_room : 64;
        Lane *old = self->lanes, *lanes = free_places(room);
        if (lanes == NULL) return PyErr_NoMemory();
        Py_ssize_t old_room = self->lane_room;
        self->lanes = lanes;
        self->lane_room = room;
        for (Py_ssize_t at = 0; at < old_room; at++)
            if (old[at].queue != NULL) place_lane(self, old[at]);
        free(old);
    }
    Lane lane = {0};
    lane.queue = Py_NewRef(queue);
    lane.count = Py_NewRef(counted);
    lane.topic = Py_NewRef(topic);
    lane.field = Py_NewRef(field);
    lane.topic_size = size;
    lane.queue_id = queue_id;
    lane.is_parking = is_parking;
    lane.hash = lane_hash(name, size, queue_id, is_parking);
    lane.magic = magic;
    lane.prefix_hash = hash_on(hash_on(0, name, size), (const uint8_t *)"#", 1);
    place_lane(self, lane);
    self->lane_count++;
    Py_RETURN_NONE;
}

/* 1 if the queue can take records that end up behind its last one, 0 if not, -1 for an error. */
static int touch(Runs *self, Lane *lane, int64_t log_end) {
    const QueueEnd *queue = (QueueEnd *)lane->queue;
    if (queue->next_offset != queue->end || queue->max_physical > log_end || queue->tail == NULL) return 0;
    if (self->touched_count == self->touched_room) {
        Py_ssize_t room = self->touched_room ? 2 * self->touched_room : 64;
        Py_ssize_t *touched = PyMem_Realloc(self->touched, room * sizeof *touched);
        if (touched == NULL) { PyErr_NoMemory(); return -1; }
        self->touched = touched;
        self->touched_room = room;
    }
    self->touched[self->touched_count++] = lane - self->lanes;
    lane->is_touched = 1;
    lane->first = lane->next = queue->next_offset;
    lane->bytes = lane->requests = 0;
    lane->units.size = 0;
    return 1;
}

static void untouch(Runs *self) {
    for (Py_ssize_t n = 0; n < self->touched_count; n++) self->lanes[self->touched[n]].is_touched = 0;
    self->touched_count = 0;
}

#endif
