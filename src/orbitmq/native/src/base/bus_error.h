/* Bus errors: a mapped file was truncated under the process, or its disk cannot be read. */
#ifndef ORBITMQ_BUS_ERROR_H
#define ORBITMQ_BUS_ERROR_H
#include "base/byte_order.h"

static PyObject *guard_maps(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(none));

#endif
