/* POP_MESSAGE: pops that find messages, with the check points by which these are redelivered. */
#ifndef ORBITMQ_POP_H
#define ORBITMQ_POP_H
#include "base/byte_order.h"

static PyTypeObject PopServerType;

#endif
