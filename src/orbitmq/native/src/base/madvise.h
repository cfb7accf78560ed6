/* Advice about mapped memory, in steps. */
#ifndef ORBITMQ_MADVISE_H
#define ORBITMQ_MADVISE_H
#include "base/byte_order.h"

static PyObject *advise(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count);
static PyObject *populate_huge_pages(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count);

#endif
