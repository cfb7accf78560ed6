/* Index verification and cutting. */
#ifndef ORBITMQ_INDEX_VERIFY_H
#define ORBITMQ_INDEX_VERIFY_H
#include "base/byte_order.h"

static PyObject *is_sound(PyObject *Py_UNUSED(module), PyObject *args);
static PyObject *cut_entries(PyObject *Py_UNUSED(module), PyObject *args);

#endif
