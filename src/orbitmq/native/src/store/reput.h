/* Reput: dispatches records of the log to queues and index. */
#ifndef ORBITMQ_REPUT_H
#define ORBITMQ_REPUT_H
#include "base/byte_order.h"

static PyTypeObject LogReplayerType;

#endif
