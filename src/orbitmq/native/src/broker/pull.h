/* PULL: answers pulls that find messages, from received bytes to the response. */
#ifndef ORBITMQ_PULL_H
#define ORBITMQ_PULL_H
#include "base/byte_order.h"

static PyTypeObject PullServerType;

static PyObject *call_read(PyObject *read, int64_t number, int64_t most);

#endif
