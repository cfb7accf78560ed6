/* Delivery of due messages from the timer or a delay level to their real queues. */
#ifndef ORBITMQ_DEFERRED_DELIVERY_H
#define ORBITMQ_DEFERRED_DELIVERY_H
#include "base/byte_order.h"

static PyObject *follow_timer_chain(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count);
static PyTypeObject DeferredDeliveryType;

#endif
