/* What is known of a queue without its files, and what was counted for it: the compiled twins of kernel/ends.py. The
 * classes of store/unit_files.py and broker/stats_samples.py are made on them, so that a message costs no step of
 * Python for its queue: with 50,000 queues most of what one run takes is the only message of its queue.
 */
#ifndef ORBITMQ_ENDS_H
#define ORBITMQ_ENDS_H
#include "large_pages.h"
#include <structmember.h>

#define TAIL_BYTES 4096 /* a tail of this size is to be written out: that of store/unit_files.py */
#define FIRST_ROOM 160 /* eight units: there may be 50,000 queues */
#define MOST_TAIL (1u << 30)

/* What every message needs comes first: with many queues none of it is in the processor's cache. */
typedef struct {
    PyObject_HEAD
    long long end, next_offset, max_physical;
    uint8_t *tail; /* the newest units */
    uint32_t tail_size, tail_room;
    uint32_t pending; /* bytes behind them that a run has put there and not entered yet */
    char is_queued;
    uint32_t revision; /* another one when units that were there before the tail may be others now */
    long long min_offset, tail_start;
} QueueEnd;

static PyMemberDef QueueEnd_members[] = {
    {"end", T_LONGLONG, offsetof(QueueEnd, end), 0, NULL},
    {"next_offset", T_LONGLONG, offsetof(QueueEnd, next_offset), 0, NULL},
    {"max_physical", T_LONGLONG, offsetof(QueueEnd, max_physical), 0, NULL},
    {"min_offset", T_LONGLONG, offsetof(QueueEnd, min_offset), 0, NULL},
    {"tail_start", T_LONGLONG, offsetof(QueueEnd, tail_start), 0, NULL},
    {"tail_size", T_UINT, offsetof(QueueEnd, tail_size), READONLY, "Bytes of the newest units."},
    {"revision", T_UINT, offsetof(QueueEnd, revision), 0, NULL},
    {"is_queued", T_BOOL, offsetof(QueueEnd, is_queued), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* The tail */

static void free_tail(uint8_t *tail, uint32_t room) {
    if (room == BLOCK_BYTES) leave_block(tail);
    else PyMem_Free(tail);
}

/* Give a tail this room, which is as much as it has in it at least; -1 for an error. */
static int move_tail(QueueEnd *queue, uint32_t room) {
    uint8_t *tail = room == BLOCK_BYTES ? take_block() : PyMem_Malloc(room);
    if (tail == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (queue->tail != NULL) {
        memcpy(tail, queue->tail, queue->tail_size + queue->pending);
        free_tail(queue->tail, queue->tail_room);
    }
    queue->tail = tail;
    queue->tail_room = room;
    return 0;
}

/* Where so many bytes behind the tail and what is pending can be put; NULL for an error. Short tails double, others have
 * room for a full one: what is more than that comes all at once, and seldom. */
static uint8_t *room_behind(QueueEnd *queue, size_t size) {
    size_t wanted = queue->tail_size + queue->pending + size;
    if (wanted > queue->tail_room) {
        size_t room = queue->tail_room ? queue->tail_room : FIRST_ROOM;
        while (room < wanted && room < BLOCK_BYTES / 2) room *= 2;
        if (room < wanted) room = wanted <= BLOCK_BYTES ? BLOCK_BYTES : wanted + wanted / 2;
        if (room > MOST_TAIL) {
            PyErr_NoMemory();
            return NULL;
        }
        if (move_tail(queue, room) < 0) return NULL;
    }
    return queue->tail + queue->tail_size + queue->pending;
}

static PyObject *QueueEnd_add_to_tail(QueueEnd *self, PyObject *units) {
    Py_buffer added;
    if (PyObject_GetBuffer(units, &added, PyBUF_SIMPLE) < 0) return NULL;
    uint8_t *at = room_behind(self, added.len);
    if (at != NULL) {
        memcpy(at, added.buf, added.len);
        self->tail_size += added.len;
    }
    PyBuffer_Release(&added);
    if (at == NULL) return NULL;
    Py_RETURN_NONE;
}

static PyObject *QueueEnd_tail_bytes(QueueEnd *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t start = count == 2 ? PyLong_AsSsize_t(args[0]) : -1, stop = count == 2 ? PyLong_AsSsize_t(args[1]) : -1;
    if (PyErr_Occurred()) return NULL;
    if (stop > (Py_ssize_t)self->tail_size) stop = self->tail_size;
    if (start < 0 || stop < start) {
        if (start >= 0 && stop >= 0) return PyBytes_FromStringAndSize(NULL, 0);
        PyErr_SetString(PyExc_ValueError, "tail_bytes(start, stop)");
        return NULL;
    }
    return PyBytes_FromStringAndSize((char *)self->tail + start, stop - start);
}

/* The size that an argument asks for, which is no more than the tail has; -1 for an error. */
static Py_ssize_t size_of_tail(const QueueEnd *self, PyObject *argument) {
    Py_ssize_t size = PyLong_AsSsize_t(argument);
    if (size < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a tail has a size");
    return size > (Py_ssize_t)self->tail_size ? (Py_ssize_t)self->tail_size : size;
}

static PyObject *QueueEnd_shorten_tail(QueueEnd *self, PyObject *argument) {
    Py_ssize_t kept = size_of_tail(self, argument);
    if (kept < 0) return NULL;
    if (kept > 0) memmove(self->tail, self->tail + (self->tail_size - kept), kept);
    self->tail_size = kept;
    if (self->tail_room > BLOCK_BYTES && kept <= (Py_ssize_t)BLOCK_BYTES && move_tail(self, BLOCK_BYTES) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *QueueEnd_cut_tail(QueueEnd *self, PyObject *argument) {
    Py_ssize_t kept = size_of_tail(self, argument);
    if (kept < 0) return NULL;
    self->tail_size = kept;
    Py_RETURN_NONE;
}

static PyMethodDef QueueEnd_methods[] = {
    {"add_to_tail", (PyCFunction)QueueEnd_add_to_tail, METH_O, "Put units behind the newest."},
    {"tail_bytes", (PyCFunction)(void (*)(void))QueueEnd_tail_bytes, METH_FASTCALL, "A part of the tail."},
    {"shorten_tail", (PyCFunction)QueueEnd_shorten_tail, METH_O, "Forget all but so many of the newest bytes of the tail."},
    {"cut_tail", (PyCFunction)QueueEnd_cut_tail, METH_O, "Forget all but so many of the oldest bytes of the tail."},
    {NULL, NULL, 0, NULL},
};

static void QueueEnd_dealloc(QueueEnd *self) {
    if (self->tail != NULL) free_tail(self->tail, self->tail_room);
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
    .tp_methods = QueueEnd_methods,
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

#endif
