/* What is known of a queue without its files, and what was counted for it: the compiled twins of kernel/ends.py. The
 * classes of store/unit_files.py and broker/stats_samples.py are made on them, so that a message costs no step of
 * Python for its queue: with 50,000 queues most of what one run takes is the only message of its queue.
 */
#ifndef ORBITMQ_ENDS_H
#define ORBITMQ_ENDS_H
#include "bytes.h"
#include <structmember.h>

typedef struct {
    PyObject_HEAD
    long long end, next_offset, max_physical, min_offset, tail_start;
    PyObject *tail; /* a bytearray, or NULL before it was given one */
    char is_queued;
} QueueEnd;

static PyMemberDef QueueEnd_members[] = {
    {"end", T_LONGLONG, offsetof(QueueEnd, end), 0, NULL},
    {"next_offset", T_LONGLONG, offsetof(QueueEnd, next_offset), 0, NULL},
    {"max_physical", T_LONGLONG, offsetof(QueueEnd, max_physical), 0, NULL},
    {"min_offset", T_LONGLONG, offsetof(QueueEnd, min_offset), 0, NULL},
    {"tail_start", T_LONGLONG, offsetof(QueueEnd, tail_start), 0, NULL},
    {"is_queued", T_BOOL, offsetof(QueueEnd, is_queued), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyObject *QueueEnd_get_tail(QueueEnd *self, void *Py_UNUSED(unused)) {
    if (self->tail == NULL) {
        PyErr_SetString(PyExc_AttributeError, "tail");
        return NULL;
    }
    return Py_NewRef(self->tail);
}

/* Looked at here, so that it need not be with every message: it lies elsewhere in memory. */
static int QueueEnd_set_tail(QueueEnd *self, PyObject *tail, void *Py_UNUSED(unused)) {
    if (tail == NULL || !PyByteArray_CheckExact(tail)) {
        PyErr_SetString(PyExc_TypeError, "a tail is a bytearray");
        return -1;
    }
    Py_XSETREF(self->tail, Py_NewRef(tail));
    return 0;
}

static PyGetSetDef QueueEnd_getset[] = {
    {"tail", (getter)QueueEnd_get_tail, (setter)QueueEnd_set_tail, "The newest units.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static void QueueEnd_dealloc(QueueEnd *self) {
    Py_XDECREF(self->tail);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject QueueEndType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.kernel._native.QueueEnd",
    .tp_doc = "What is known of a queue without its files.",
    .tp_basicsize = sizeof(QueueEnd),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_dealloc = (destructor)QueueEnd_dealloc,
    .tp_members = QueueEnd_members,
    .tp_getset = QueueEnd_getset,
};

typedef struct {
    PyObject_HEAD
    long long times, nums, size;
} Count;

static PyMemberDef Count_members[] = {
    {"times", T_LONGLONG, offsetof(Count, times), 0, NULL},
    {"nums", T_LONGLONG, offsetof(Count, nums), 0, NULL},
    {"size", T_LONGLONG, offsetof(Count, size), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyTypeObject CountType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.kernel._native.Count",
    .tp_doc = "How often something was done, with how many and how large things.",
    .tp_basicsize = sizeof(Count),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = PyType_GenericNew,
    .tp_members = Count_members,
};

/* A bytearray with so many bytes more at its end; -1 for an error. It grows by half: Python lets it grow by an eighth, and
 * short ones would be moved with every unit. */
static int grow_tail(PyObject *tail, Py_ssize_t size) {
    const PyByteArrayObject *array = (PyByteArrayObject *)tail;
    Py_ssize_t wanted = Py_SIZE(array) + size, room = array->ob_alloc - (array->ob_start - array->ob_bytes);
    if (wanted >= room && PyByteArray_Resize(tail, wanted + wanted / 2) < 0) return -1;
    return PyByteArray_Resize(tail, wanted);
}

#endif
