/* SEND: appends sends from received bytes to the log in one pass. */
#ifndef ORBITMQ_SEND_H
#define ORBITMQ_SEND_H
#include "base/byte_order.h"

static PyTypeObject SendBatcherType;

#endif
