/* Reput: dispatches records of the log to queues and index. */
#ifndef ORBITMQ_REPUT_H
#define ORBITMQ_REPUT_H
#include "base/byte_order.h"
#include "protocol/properties.h"

static PyTypeObject LogReplayerType;

static void find_indexed_properties(Slice properties, ParsedProperties *parsed, Slice *delay);

#endif
