/* Queue state and counters. */
#ifndef ORBITMQ_QUEUE_STATE_H
#define ORBITMQ_QUEUE_STATE_H
#include "base/byte_order.h"
#include "base/huge_pages.h"

#define FRESH_BYTES 60 /* three units: what fits into the two cache lines of a queue state */

/* Hot state of a queue: what every message needs. Two cache lines, outside of the Python object of the queue: that lies
 * in small pages, and with many queues neither it nor its page's address is cached. The same holds for the tail, which
 * is as long as a page, so single units are put into the inline buffer `fresh` first. */
typedef struct {
    _Alignas(CACHE_LINE) PyObject *owner;
    long long end, next_offset, max_physical;
    uint8_t *tail; /* the newest units, without the fresh ones behind them */
    uint32_t tail_size, tail_room;
    uint32_t pending; /* bytes behind all of them that the current batch has put there and not entered yet */
    uint32_t full_at; /* a tail of so many bytes, the fresh ones included, is to be written out */
    char is_queued;
    char is_pending_fresh; /* pending units are behind the fresh ones, not in the tail */
    uint8_t fresh_size;
    uint8_t fresh[FRESH_BYTES];
} QueueState;

typedef struct {
    PyObject_HEAD
    QueueState *at;
    uint32_t revision; /* changes when units before the tail may have changed */
    long long min_offset, tail_start;
} QueueStateObject;

#define SIZE_BOUNDS 6

/* Counters, with their values outside of the Python object likewise. */
typedef struct {
    PyObject *owner;
    long long times, nums, size;
    long long over[SIZE_BOUNDS]; /* messages whose records are larger than each of size_bounds */
} Counter;

/* Buckets of RocketMQ's message size histogram. Records up to the first bound, which most are, are not counted. */
static const uint32_t size_bounds[SIZE_BOUNDS] = {1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20};

/* Count a record that is larger than the first bound. */
static inline void count_large(Counter *count, uint32_t size) {
    for (int n = 0; n < SIZE_BOUNDS && size > size_bounds[n]; n++) count->over[n]++;
}

static QueueState *queue_state_of(PyObject *queue);
static uint32_t size_in_memory(const QueueState *queue);
static uint8_t *pending_of(QueueState *queue);
static int move_fresh_to_tail(QueueState *queue);
static void drop_pending(QueueState *queue);
static uint8_t *room_for_unit(QueueState *queue, size_t size);
static PyTypeObject QueueStateType;
static Counter *counter_of(PyObject *count);
static PyTypeObject CounterType;

#endif
