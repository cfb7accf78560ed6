/* SEND_BATCH: requests with many messages, each stored as a record of its own. */
#ifndef ORBITMQ_SEND_BATCH_H
#define ORBITMQ_SEND_BATCH_H
#include "base/byte_order.h"
#include "protocol/send_header.h"
#include "store/append.h"
#include "store/route_table.h"

static int append_batch(Batcher *self, const Send *send, Slice properties, Slice batch, Slice born_host, int is_binary, LogCursor *cursor);

#endif
