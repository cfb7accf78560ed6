/* BATCH_ACK_MESSAGE: acknowledgements of several messages or pops in one request. */
#ifndef ORBITMQ_POP_ACK_BATCH_H
#define ORBITMQ_POP_ACK_BATCH_H
#include "base/byte_order.h"
#include "store/append.h"
#include "store/route_table.h"

#define BATCH_ACK_MESSAGE 200151

static int acknowledge_batch(Batcher *self, Slice body, LogCursor *cursor);

#endif
