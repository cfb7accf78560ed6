/* Fields of a send request. */
#ifndef ORBITMQ_SEND_HEADER_H
#define ORBITMQ_SEND_HEADER_H
#include "base/byte_order.h"
#include "protocol/remoting_header.h"

typedef struct {
    int64_t opaque, flag; /* of the request */
    Slice topic, properties;
    int is_batch, has_escapes, has_non_ascii; /* the latter two in the properties */
    int64_t queue_id, sys_flag, born, message_flag, reconsumed;
} Send;

static int which_of_send(Slice name);
static int read_send(const Request *request, Send *send);

#endif
