/* ACK_MESSAGE and BATCH_ACK_MESSAGE: append acknowledgements of popped messages to the log. */
#ifndef ORBITMQ_POP_ACK_H
#define ORBITMQ_POP_ACK_H
#include "base/byte_order.h"
#include "store/append.h"
#include "store/route_table.h"

#define BIT_SET_BYTES 32 /* of one entry of a batch, which has the messages of one pop */
#define MAX_BATCH_ACKED 64 /* messages that one entry names; a pop hands out 32 at most */

typedef struct {
    Slice group, topic, broker_name;
    int64_t queue_id, offset, start, pop_time, invisible, revive_queue;
    int64_t count;  /* of the messages in a batch: those of the bits that are set, counted from start */
    int bits_size;  /* 0: the one message at offset */
    uint8_t bits[BIT_SET_BYTES];
} Ack;

/* A record that goes through the timer to a revive queue: an acknowledgement or a check point. Its body was put into the
 * text buffer; the key is made of topic, queue, offset, group, pop time, broker and end. */
typedef struct {
    Slice body, topic, group, broker_name;
    int64_t queue_id, offset, pop_time, deliver, revive_queue; /* a negative offset stands for several messages */
    const char *key_end, *tag;
} RevivedRecord;

static void put_revive_properties(const Batcher *self, uint8_t *at, const RevivedRecord *revived, int64_t now, Record *record);
static int64_t bit_offset(const Ack *ack, int bit);
static int has_bit(const Ack *ack, int bit);
static int find_ack_routes(Batcher *self, const Ack *ack, const LogCursor *cursor, QueueRoute **home, QueueRoute **timer);
static int64_t ack_room(const Batcher *self, const Ack *ack);
static int append_ack(Batcher *self, QueueRoute *home, QueueRoute *timer, const Ack *ack, LogCursor *cursor);

static PyTypeObject AckBatcherType;

#endif
