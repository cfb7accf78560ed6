/* What is known of a queue without its files, and what was counted for it: the compiled twins of kernel/ends.py. The
 * classes of store/unit_files.py and broker/stats_samples.py are made on them, so that a message costs no step of
 * Python for its queue: with 50,000 queues most of what one run takes is the only message of its queue.
 */
#ifndef ORBITMQ_ENDS_H
#define ORBITMQ_ENDS_H
#include "large_pages.h"
#include <structmember.h>

#define FIRST_ROOM 160 /* eight units: there may be 50,000 queues */
#define BLOCK_BYTES ((size_t)4480) /* a tail that is full, and some units more */
#define MOST_TAIL (1u << 30)
#define FRESH_BYTES 60 /* three units: as many as the two lines of an end have room for */

static Pieces tail_blocks = {BLOCK_BYTES, NULL, 0};

/* What every message needs of its queue. It is two lines of the processor's cache, and not in the object of its queue:
 * that is in small pages, as all of Python's are, and with many queues neither it nor the address of its page is at
 * hand. Nor is that of a tail, which is as long as a page, so single units that come are put here first. */
typedef struct {
    _Alignas(CACHE_LINE) PyObject *owner;
    long long end, next_offset, max_physical;
    uint8_t *tail; /* the newest units, without the fresh ones behind them */
    uint32_t tail_size, tail_room;
    uint32_t pending; /* bytes behind all of them that a run has put there and not entered yet */
    uint32_t full_at; /* a tail of so many bytes, the fresh ones included, is to be written out */
    char is_queued;
    char is_pending_fresh; /* whether what is pending is behind the fresh ones, and not in the tail */
    uint8_t fresh_size;
    uint8_t fresh[FRESH_BYTES];
} End;

static Pieces ends = {sizeof(End), NULL, 0};

typedef struct {
    PyObject_HEAD
    End *at;
    uint32_t revision; /* another one when units that were there before the tail may be others now */
    long long min_offset, tail_start;
} QueueEnd;

static End *end_of(PyObject *queue) { return ((QueueEnd *)queue)->at; }

static PyMemberDef QueueEnd_members[] = {
    {"min_offset", T_LONGLONG, offsetof(QueueEnd, min_offset), 0, NULL},
    {"tail_start", T_LONGLONG, offsetof(QueueEnd, tail_start), 0, NULL},
    {"revision", T_UINT, offsetof(QueueEnd, revision), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* Numbers that are not in their object: what is passed on is where they are, counted from the place they are in. */

static PyObject *get_number(const void *place, void *offset) {
    return PyLong_FromLongLong(*(const long long *)((const char *)place + (size_t)offset));
}

/* -1 for an error */
static int set_number(void *place, PyObject *value, void *offset) {
    long long number = value == NULL ? -1 : PyLong_AsLongLong(value);
    if (value == NULL) PyErr_SetString(PyExc_TypeError, "a number cannot be deleted");
    if (PyErr_Occurred()) return -1;
    *(long long *)((char *)place + (size_t)offset) = number;
    return 0;
}

static PyObject *QueueEnd_get(QueueEnd *self, void *offset) { return get_number(self->at, offset); }

static int QueueEnd_set(QueueEnd *self, PyObject *value, void *offset) { return set_number(self->at, value, offset); }

static PyObject *QueueEnd_tail_size(QueueEnd *self, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLong(self->at->tail_size + self->at->fresh_size);
}

static PyObject *QueueEnd_full_at(QueueEnd *self, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLong(self->at->full_at);
}

static int QueueEnd_set_full_at(QueueEnd *self, PyObject *value, void *Py_UNUSED(unused)) {
    long long size = 0;
    if (set_number(&size, value, 0) < 0) return -1;
    if (size < 0 || size > MOST_TAIL) {
        PyErr_SetString(PyExc_ValueError, "a tail is not full at this size");
        return -1;
    }
    self->at->full_at = (uint32_t)size;
    return 0;
}

static PyObject *QueueEnd_is_queued(QueueEnd *self, void *Py_UNUSED(unused)) { return PyBool_FromLong(self->at->is_queued); }

static int QueueEnd_set_is_queued(QueueEnd *self, PyObject *value, void *Py_UNUSED(unused)) {
    int is_queued = value == NULL ? 0 : PyObject_IsTrue(value);
    if (is_queued < 0) return -1;
    self->at->is_queued = (char)is_queued;
    return 0;
}

#define END_NUMBER(name) \
    {#name, (getter)QueueEnd_get, (setter)QueueEnd_set, NULL, (void *)offsetof(End, name)}

static PyGetSetDef QueueEnd_getset[] = {
    END_NUMBER(end),
    END_NUMBER(next_offset),
    END_NUMBER(max_physical),
    {"tail_size", (getter)QueueEnd_tail_size, NULL, "Bytes of the newest units.", NULL},
    {"full_at", (getter)QueueEnd_full_at, (setter)QueueEnd_set_full_at, "With how many it is to be written out.", NULL},
    {"is_queued", (getter)QueueEnd_is_queued, (setter)QueueEnd_set_is_queued, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* The tail */

static void free_tail(uint8_t *tail, uint32_t room) {
    if (room == BLOCK_BYTES) leave_piece(&tail_blocks, tail);
    else PyMem_Free(tail);
}

/* Give a tail this room, which is as much as it has in it at least; -1 for an error. */
static int move_tail(End *queue, uint32_t room) {
    uint8_t *tail = room == BLOCK_BYTES ? take_piece(&tail_blocks) : PyMem_Malloc(room);
    if (tail == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    if (queue->tail != NULL) {
        memcpy(tail, queue->tail, queue->tail_size + (queue->is_pending_fresh ? 0 : queue->pending));
        free_tail(queue->tail, queue->tail_room);
    }
    queue->tail = tail;
    queue->tail_room = room;
    return 0;
}

/* Give a tail room for so many bytes; -1 for an error. Short tails double, others have room for a full one: what is more
 * than that comes all at once, and seldom. */
static int make_room(End *queue, size_t wanted) {
    if (wanted > queue->tail_room) {
        size_t room = queue->tail_room ? queue->tail_room : FIRST_ROOM;
        while (room < wanted && room < BLOCK_BYTES / 2) room *= 2;
        if (room < wanted) room = wanted <= BLOCK_BYTES ? BLOCK_BYTES : wanted + wanted / 2;
        if (room > MOST_TAIL) {
            PyErr_NoMemory();
            return -1;
        }
        if (move_tail(queue, room) < 0) return -1;
    }
    return 0;
}

/* All units that a queue has in memory, and those that are pending. */
static uint32_t size_in_memory(const End *queue) { return queue->tail_size + queue->fresh_size + queue->pending; }

/* Where what is pending begins. */
static uint8_t *pending_of(End *queue) {
    return queue->is_pending_fresh ? queue->fresh + queue->fresh_size : queue->tail + queue->tail_size;
}

/* Put the fresh units into the tail, and behind them what is pending if it was with them; -1 for an error. */
static int settle(End *queue) {
    if (queue->fresh_size == 0 && !queue->is_pending_fresh) return 0;
    if (make_room(queue, size_in_memory(queue)) < 0) return -1;
    uint32_t size = queue->fresh_size + (queue->is_pending_fresh ? queue->pending : 0);
    memcpy(queue->tail + queue->tail_size, queue->fresh, size);
    queue->tail_size += queue->fresh_size;
    queue->fresh_size = 0;
    queue->is_pending_fresh = 0;
    return 0;
}

static void forget_pending(End *queue) { queue->pending = queue->is_pending_fresh = 0; }

/* Where one unit behind all others and what is pending can be put; NULL for an error. */
static uint8_t *room_for_unit(End *queue, size_t size) {
    if (queue->pending == 0) queue->is_pending_fresh = 1;
    if (queue->is_pending_fresh) {
        if (queue->fresh_size + queue->pending + size <= FRESH_BYTES) return pending_of(queue) + queue->pending;
        if (settle(queue) < 0) return NULL;
    }
    if (make_room(queue, queue->tail_size + queue->pending + size) < 0) return NULL;
    return pending_of(queue) + queue->pending;
}

static PyObject *QueueEnd_add_to_tail(QueueEnd *self, PyObject *units) {
    Py_buffer added;
    if (PyObject_GetBuffer(units, &added, PyBUF_SIMPLE) < 0) return NULL;
    End *queue = self->at;
    int result = settle(queue);
    if (result == 0) result = make_room(queue, queue->tail_size + (size_t)added.len);
    if (result == 0) {
        memcpy(queue->tail + queue->tail_size, added.buf, added.len);
        queue->tail_size += added.len;
    }
    PyBuffer_Release(&added);
    if (result < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *QueueEnd_tail_bytes(QueueEnd *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t start = count == 2 ? PyLong_AsSsize_t(args[0]) : -1, stop = count == 2 ? PyLong_AsSsize_t(args[1]) : -1;
    if (PyErr_Occurred() || settle(self->at) < 0) return NULL;
    if (stop > (Py_ssize_t)self->at->tail_size) stop = self->at->tail_size;
    if (start < 0 || stop < start) {
        if (start >= 0 && stop >= 0) return PyBytes_FromStringAndSize(NULL, 0);
        PyErr_SetString(PyExc_ValueError, "tail_bytes(start, stop)");
        return NULL;
    }
    return PyBytes_FromStringAndSize((char *)self->at->tail + start, stop - start);
}

/* The size that an argument asks for, which is no more than the tail has, and it has all units then; -1 for an error. */
static Py_ssize_t size_of_tail(const QueueEnd *self, PyObject *argument) {
    Py_ssize_t size = PyLong_AsSsize_t(argument);
    if (settle(self->at) < 0) return -1;
    if (size < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a tail has a size");
    return size > (Py_ssize_t)self->at->tail_size ? (Py_ssize_t)self->at->tail_size : size;
}

static PyObject *QueueEnd_shorten_tail(QueueEnd *self, PyObject *argument) {
    Py_ssize_t kept = size_of_tail(self, argument);
    if (kept < 0) return NULL;
    if (kept > 0) memmove(self->at->tail, self->at->tail + (self->at->tail_size - kept), kept);
    self->at->tail_size = kept;
    if (self->at->tail_room > BLOCK_BYTES && kept <= (Py_ssize_t)BLOCK_BYTES && move_tail(self->at, BLOCK_BYTES) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *QueueEnd_cut_tail(QueueEnd *self, PyObject *argument) {
    Py_ssize_t kept = size_of_tail(self, argument);
    if (kept < 0) return NULL;
    self->at->tail_size = kept;
    Py_RETURN_NONE;
}

static PyMethodDef QueueEnd_methods[] = {
    {"add_to_tail", (PyCFunction)QueueEnd_add_to_tail, METH_O, "Put units behind the newest."},
    {"tail_bytes", (PyCFunction)(void (*)(void))QueueEnd_tail_bytes, METH_FASTCALL, "A part of the tail."},
    {"shorten_tail", (PyCFunction)QueueEnd_shorten_tail, METH_O, "Forget all but so many of the newest bytes of the tail."},
    {"cut_tail", (PyCFunction)QueueEnd_cut_tail, METH_O, "Forget all but so many of the oldest bytes of the tail."},
    {NULL, NULL, 0, NULL},
};

static PyObject *QueueEnd_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(named)) {
    QueueEnd *self = (QueueEnd *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->at = take_piece(&ends);
    if (self->at == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    *self->at = (End){.owner = (PyObject *)self, .full_at = MOST_TAIL};
    return (PyObject *)self;
}

static void QueueEnd_dealloc(QueueEnd *self) {
    if (self->at != NULL) {
        if (self->at->tail != NULL) free_tail(self->at->tail, self->at->tail_room);
        leave_piece(&ends, self->at);
    }
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject QueueEndType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.kernel._native.QueueEnd",
    .tp_doc = "What is known of a queue without its files.",
    .tp_basicsize = sizeof(QueueEnd),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = QueueEnd_new,
    .tp_dealloc = (destructor)QueueEnd_dealloc,
    .tp_members = QueueEnd_members,
    .tp_getset = QueueEnd_getset,
    .tp_methods = QueueEnd_methods,
};

/* What was counted, likewise. */
typedef struct {
    PyObject *owner;
    long long times, nums, size;
} Tally;

static Pieces tallies = {sizeof(Tally), NULL, 0};

typedef struct {
    PyObject_HEAD
    Tally *at;
} Count;

static Tally *tally_of(PyObject *count) { return ((Count *)count)->at; }

static PyObject *Count_get(Count *self, void *offset) { return get_number(self->at, offset); }

static int Count_set(Count *self, PyObject *value, void *offset) { return set_number(self->at, value, offset); }

#define COUNT_NUMBER(name) \
    {#name, (getter)Count_get, (setter)Count_set, NULL, (void *)offsetof(Tally, name)}

static PyGetSetDef Count_getset[] = {
    COUNT_NUMBER(times),
    COUNT_NUMBER(nums),
    COUNT_NUMBER(size),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyObject *Count_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(named)) {
    Count *self = (Count *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->at = take_piece(&tallies);
    if (self->at == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    *self->at = (Tally){.owner = (PyObject *)self};
    return (PyObject *)self;
}

static void Count_dealloc(Count *self) {
    if (self->at != NULL) leave_piece(&tallies, self->at);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject CountType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.kernel._native.Count",
    .tp_doc = "How often something was done, with how many and how large things.",
    .tp_basicsize = sizeof(Count),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = Count_new,
    .tp_dealloc = (destructor)Count_dealloc,
    .tp_getset = Count_getset,
};

#endif
