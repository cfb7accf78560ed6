/* Route table: the queues to which records may be appended, and what each gets in one batch. */
#ifndef ORBITMQ_ROUTE_TABLE_H
#define ORBITMQ_ROUTE_TABLE_H
#include "base/byte_order.h"
#include "base/huge_pages.h"
#include "store/queue_state.h"

/* One cache line: with many queues none is cached, and this one is fetched for every message. The units that a queue
 * gets in a batch are behind its tail until they are entered. */
typedef struct {
    _Alignas(CACHE_LINE) QueueState *queue; /* NULL: no queue yet, but deferred messages may name it */
    PyObject *field; /* the topic with its length in front, as records have it */
    Counter *count; /* counts its messages; NULL: they are reported as a QueueShare */
    PyObject *topic;
    int32_t queue_id;
    uint32_t magic;
    uint32_t prefix_hash; /* of the topic and "#", with which keys in the index begin */
    uint32_t requests; /* in this batch */
    uint32_t halves; /* half messages for this queue in this batch, which go to another route */
    uint16_t topic_size;
    char is_deferral; /* for deferred messages, and not for what clients send to the topic */
    char is_touched;
    int64_t bytes; /* of the records of this batch */
} QueueRoute;

/* Slot of the hash table: hash and number of a route, counted from 1. Small, so that it stays cached. */
typedef struct { uint32_t hash, number; } RouteSlot;

typedef struct {
    PyObject_HEAD
    QueueRoute *routes;
    Py_ssize_t route_room, route_count;
    RouteSlot *slots; /* open addressing; a power of two, at most half full */
    Py_ssize_t slot_room;
    Py_ssize_t *touched;
    Py_ssize_t touched_room, touched_count;
    PyObject *languages, *added, *store_host, *json_parts, *binary_parts, *timed_json_parts, *timed_binary_parts, *crc32;
    PyObject *delays, *broker_name, *revive_topic, *batch_json, *batch_binary, *host_hex;
    PyObject *unique_ids; /* makes the unique keys of messages that come without one */
    int64_t precision, longest, revive_queues;
    long language, version;
    int64_t kept_flags;
    Py_ssize_t max_body, max_properties;
    int is_indexing;
    int has_listeners; /* arrival listeners want every queue that got records */
    int answers_later; /* answers wait for replicas, those to WAIT=false do not */
    int dispatches_later; /* records are dispatched later: queues get their numbers only, the index nothing */
    ByteBuffer answers, hashes, offsets, text, suffix, half_routes, acked_ranges, items, made_key;
    PyObject *missing;
} Batcher;

/* Most messages do not touch the tail: only those for which the inline buffer has no room. */
static void prefetch_tail(const QueueRoute *route) {
    const QueueState *queue = route->queue;
    if (queue == NULL || queue->tail == NULL || queue->fresh_size + UNIT_SIZE <= FRESH_BYTES) return;
    __builtin_prefetch(queue->tail + queue->tail_size, 1);
    __builtin_prefetch(queue->tail + queue->tail_size + FRESH_BYTES + UNIT_SIZE - 1, 1);
}

static uint32_t route_hash(const uint8_t *topic, Py_ssize_t size, int64_t queue_id, int is_deferral);
static QueueRoute *find_hashed_route(const Batcher *self, uint32_t hash, const uint8_t *topic, Py_ssize_t size, int64_t queue_id,
                              int is_deferral);
static QueueRoute *find_route(const Batcher *self, const uint8_t *topic, Py_ssize_t size, int64_t queue_id, int is_deferral);
static void prefetch_slot(const Batcher *self, uint32_t hash);
static void prefetch_route(const Batcher *self, uint32_t hash);
static void prefetch_queue(const QueueRoute *route);
static void untouch(Batcher *self);
static PyObject *Batcher_clear_routes(Batcher *self, PyObject *Py_UNUSED(unused));
static PyObject *Batcher_add_route(Batcher *self, PyObject *args);
static int64_t next_in(const QueueRoute *route);
static int64_t next_shown(const QueueRoute *route);
static int64_t stop_of(const QueueRoute *route);
static uint8_t *unit_room(const QueueRoute *route);
static void put_unit(uint8_t *unit, int64_t offset, uint32_t size, int64_t code);
static void count_record(QueueRoute *route, uint32_t size);
static int is_caught_up(const QueueRoute *route, int64_t log_end);
static int touch(Batcher *self, QueueRoute *route);
static int Batcher_traverse(Batcher *self, visitproc visit, void *arg);
static int Batcher_clear(Batcher *self);
static void Batcher_dealloc(Batcher *self);
static PyObject *Batcher_get_missing_route(Batcher *self, void *Py_UNUSED(unused));
static PyGetSetDef Batcher_getset[2];

#endif
