/* ACK_MESSAGE: appends acknowledgements of popped messages to the log. */
#ifndef ORBITMQ_POP_ACK_H
#define ORBITMQ_POP_ACK_H
#include "base/byte_order.h"

static PyTypeObject AckBatcherType;

#endif
