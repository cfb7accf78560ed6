/* UPDATE_CONSUMER_OFFSET and QUERY_CONSUMER_OFFSET: read and change offsets in the table of the broker. */
#ifndef ORBITMQ_OFFSET_SERVER_H
#define ORBITMQ_OFFSET_SERVER_H
#include "base/byte_order.h"

static PyTypeObject OffsetServerType;

#endif
