/* Signed requests: which of those that received bytes begin with are signed by a user who may make them. */
#ifndef ORBITMQ_SIGNED_REQUEST_H
#define ORBITMQ_SIGNED_REQUEST_H
#include "base/byte_order.h"

static PyObject *verify_requests(PyObject *module, PyObject *const *args, Py_ssize_t count);
static PyObject *signing_key(PyObject *module, PyObject *const *args, Py_ssize_t count);

#endif
