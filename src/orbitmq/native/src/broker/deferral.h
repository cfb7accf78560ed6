/* Deferred messages: timers, delay levels and half messages, stored under a system topic until they are due. */
#ifndef ORBITMQ_DEFERRAL_H
#define ORBITMQ_DEFERRAL_H
#include "base/byte_order.h"
#include "protocol/send_header.h"
#include "store/route_table.h"

enum DeferralKind { DEFER_NONE, DEFER_TIMER, DEFER_DELAY_LEVEL, DEFER_HALF };

typedef struct {
    enum DeferralKind kind;
    int64_t out;   /* the timer slot */
    int64_t level; /* the delay level */
    int64_t delay;
} Deferral;

static const char *const DEFERRAL_TOPICS[] = {NULL, "rmq_sys_wheel_timer", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"};

static int contains(Slice text, const char *piece);
static int read_deferral(const Batcher *self, Slice properties, int64_t now, Deferral *deferral);
static int64_t deferral_queue(const Deferral *deferral);
static uint8_t *put_bytes(uint8_t *at, const void *text, Py_ssize_t size);
static uint8_t *put_part(uint8_t *at, PyObject *parts, Py_ssize_t number);
static int are_bytes(PyObject *parts);
static Py_ssize_t parts_size(PyObject *parts);
static uint8_t *put_literal(uint8_t *at, const char *word);
static uint8_t *put_decimal(uint8_t *at, uint64_t number);
static uint8_t *put_hex(uint8_t *at, uint64_t number);
static uint8_t *put_sized(uint8_t *at, uint64_t number);
static uint8_t *put_binary_head(const Batcher *self, uint8_t *at, int64_t opaque);
static Py_ssize_t end_frame(uint8_t *start, const uint8_t *end, int is_binary);
static int put_suffix(Batcher *self, const Deferral *deferral, const Send *send, Slice unique_key);
static Py_ssize_t handle_room(const Batcher *self, const Send *send, Slice unique_key);
static uint8_t *put_handle(const Batcher *self, uint8_t *at, const Deferral *deferral, const Send *send, Slice unique_key);

#endif
