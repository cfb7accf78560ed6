/* Queue state and counters. Twins of native/python/queue_state.py, and base classes of those in
 * store/consumequeue/unit_file.py and broker/stats/samples.py: a message needs no Python step for its queue. With
 * 50,000 queues most messages of a batch are the only one of their queue. */
#include "store/queue_state.h"
#include "base/huge_pages.h"
#include <structmember.h>

#define FIRST_ROOM 160 /* eight units: there may be 50,000 queues */
#define BLOCK_BYTES ((size_t)4480) /* a full tail and some units more */
#define MAX_TAIL (1u << 30)

static SlabPool tail_blocks = {BLOCK_BYTES, NULL, 0};

static SlabPool queue_state_pool = {sizeof(QueueState), NULL, 0};

static QueueState *queue_state_of(PyObject *queue) { return ((QueueStateObject *)queue)->at; }

static PyMemberDef QueueState_members[] = {
    {"min_offset", T_LONGLONG, offsetof(QueueStateObject, min_offset), 0, NULL},
    {"tail_start", T_LONGLONG, offsetof(QueueStateObject, tail_start), 0, NULL},
    {"revision", T_UINT, offsetof(QueueStateObject, revision), 0, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* Attributes that lie outside of their object, by their distance from the base. */

static PyObject *get_number(const void *base, void *offset) {
    return PyLong_FromLongLong(*(const long long *)((const char *)base + (size_t)offset));
}

/* -1 for an error */
static int set_number(void *base, PyObject *value, void *offset) {
    long long number = value == NULL ? -1 : PyLong_AsLongLong(value);
    if (value == NULL) PyErr_SetString(PyExc_TypeError, "a number cannot be deleted");
    if (PyErr_Occurred()) return -1;
    *(long long *)((char *)base + (size_t)offset) = number;
    return 0;
}

static PyObject *QueueState_get(QueueStateObject *self, void *offset) { return get_number(self->at, offset); }

static int QueueState_set(QueueStateObject *self, PyObject *value, void *offset) { return set_number(self->at, value, offset); }

static PyObject *QueueState_tail_size(QueueStateObject *self, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLong(self->at->tail_size + self->at->fresh_size);
}

static PyObject *QueueState_full_at(QueueStateObject *self, void *Py_UNUSED(unused)) {
    return PyLong_FromUnsignedLong(self->at->full_at);
}

static int QueueState_set_full_at(QueueStateObject *self, PyObject *value, void *Py_UNUSED(unused)) {
    long long size = 0;
    if (set_number(&size, value, 0) < 0) return -1;
    if (size < 0 || size > MAX_TAIL) {
        PyErr_SetString(PyExc_ValueError, "full_at is out of range");
        return -1;
    }
    self->at->full_at = (uint32_t)size;
    return 0;
}

static PyObject *QueueState_is_queued(QueueStateObject *self, void *Py_UNUSED(unused)) { return PyBool_FromLong(self->at->is_queued); }

static int QueueState_set_is_queued(QueueStateObject *self, PyObject *value, void *Py_UNUSED(unused)) {
    int is_queued = value == NULL ? 0 : PyObject_IsTrue(value);
    if (is_queued < 0) return -1;
    self->at->is_queued = (char)is_queued;
    return 0;
}

#define END_NUMBER(name) \
    {#name, (getter)QueueState_get, (setter)QueueState_set, NULL, (void *)offsetof(QueueState, name)}

static PyGetSetDef QueueState_getset[] = {
    END_NUMBER(end),
    END_NUMBER(next_offset),
    END_NUMBER(max_physical),
    {"tail_size", (getter)QueueState_tail_size, NULL, "Bytes of the newest units.", NULL},
    {"full_at", (getter)QueueState_full_at, (setter)QueueState_set_full_at, "With how many it is to be written out.", NULL},
    {"is_queued", (getter)QueueState_is_queued, (setter)QueueState_set_is_queued, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* The tail */

static void free_tail(uint8_t *tail, uint32_t room) {
    if (room == BLOCK_BYTES) slab_free(&tail_blocks, tail);
    else PyMem_Free(tail);
}

/* Resize the allocation of a tail, to no less than it holds; -1 for an error. */
static int move_tail(QueueState *queue, uint32_t room) {
    uint8_t *tail = room == BLOCK_BYTES ? slab_alloc(&tail_blocks) : PyMem_Malloc(room);
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

/* Reserve room for a tail of so many bytes; -1 for an error. Short tails double, others get the room of a full one:
 * more than that comes all at once, and seldom. */
static int make_room(QueueState *queue, size_t wanted) {
    if (wanted > queue->tail_room) {
        size_t room = queue->tail_room ? queue->tail_room : FIRST_ROOM;
        while (room < wanted && room < BLOCK_BYTES / 2) room *= 2;
        if (room < wanted) room = wanted <= BLOCK_BYTES ? BLOCK_BYTES : wanted + wanted / 2;
        if (room > MAX_TAIL) {
            PyErr_NoMemory();
            return -1;
        }
        if (move_tail(queue, room) < 0) return -1;
    }
    return 0;
}

/* All units that a queue has in memory, pending ones included. */
static uint32_t size_in_memory(const QueueState *queue) { return queue->tail_size + queue->fresh_size + queue->pending; }

/* Where pending units begin. */
static uint8_t *pending_of(QueueState *queue) {
    return queue->is_pending_fresh ? queue->fresh + queue->fresh_size : queue->tail + queue->tail_size;
}

/* Move the fresh units to the tail, with pending ones if they are behind them; -1 for an error. */
static int move_fresh_to_tail(QueueState *queue) {
    if (queue->fresh_size == 0 && !queue->is_pending_fresh) return 0;
    if (make_room(queue, size_in_memory(queue)) < 0) return -1;
    uint32_t size = queue->fresh_size + (queue->is_pending_fresh ? queue->pending : 0);
    memcpy(queue->tail + queue->tail_size, queue->fresh, size);
    queue->tail_size += queue->fresh_size;
    queue->fresh_size = 0;
    queue->is_pending_fresh = 0;
    return 0;
}

static void drop_pending(QueueState *queue) { queue->pending = queue->is_pending_fresh = 0; }

/* Where one unit behind all others and the pending ones can be put; NULL for an error. */
static uint8_t *room_for_unit(QueueState *queue, size_t size) {
    if (queue->pending == 0) queue->is_pending_fresh = 1;
    if (queue->is_pending_fresh) {
        if (queue->fresh_size + queue->pending + size <= FRESH_BYTES) return pending_of(queue) + queue->pending;
        if (move_fresh_to_tail(queue) < 0) return NULL;
    }
    if (make_room(queue, queue->tail_size + queue->pending + size) < 0) return NULL;
    return pending_of(queue) + queue->pending;
}

static PyObject *QueueState_add_to_tail(QueueStateObject *self, PyObject *units) {
    Py_buffer added;
    if (PyObject_GetBuffer(units, &added, PyBUF_SIMPLE) < 0) return NULL;
    QueueState *queue = self->at;
    int result = move_fresh_to_tail(queue);
    if (result == 0) result = make_room(queue, queue->tail_size + (size_t)added.len);
    if (result == 0) {
        memcpy(queue->tail + queue->tail_size, added.buf, added.len);
        queue->tail_size += added.len;
    }
    PyBuffer_Release(&added);
    if (result < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *QueueState_tail_bytes(QueueStateObject *self, PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t start = count == 2 ? PyLong_AsSsize_t(args[0]) : -1, stop = count == 2 ? PyLong_AsSsize_t(args[1]) : -1;
    if (PyErr_Occurred() || move_fresh_to_tail(self->at) < 0) return NULL;
    if (stop > (Py_ssize_t)self->at->tail_size) stop = self->at->tail_size;
    if (start < 0 || stop < start) {
        if (start >= 0 && stop >= 0) return PyBytes_FromStringAndSize(NULL, 0);
        PyErr_SetString(PyExc_ValueError, "tail_bytes(start, stop)");
        return NULL;
    }
    return PyBytes_FromStringAndSize((char *)self->at->tail + start, stop - start);
}

/* The size that an argument asks for, limited to the size of the tail, which has all units then; -1 for an error. */
static Py_ssize_t size_of_tail(const QueueStateObject *self, PyObject *argument) {
    Py_ssize_t size = PyLong_AsSsize_t(argument);
    if (move_fresh_to_tail(self->at) < 0) return -1;
    if (size < 0 && !PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "a tail size cannot be negative");
    return size > (Py_ssize_t)self->at->tail_size ? (Py_ssize_t)self->at->tail_size : size;
}

static PyObject *QueueState_shorten_tail(QueueStateObject *self, PyObject *argument) {
    Py_ssize_t kept = size_of_tail(self, argument);
    if (kept < 0) return NULL;
    if (kept > 0) memmove(self->at->tail, self->at->tail + (self->at->tail_size - kept), kept);
    self->at->tail_size = kept;
    if (self->at->tail_room > BLOCK_BYTES && kept <= (Py_ssize_t)BLOCK_BYTES && move_tail(self->at, BLOCK_BYTES) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *QueueState_cut_tail(QueueStateObject *self, PyObject *argument) {
    Py_ssize_t kept = size_of_tail(self, argument);
    if (kept < 0) return NULL;
    self->at->tail_size = kept;
    Py_RETURN_NONE;
}

static PyMethodDef QueueState_methods[] = {
    {"add_to_tail", (PyCFunction)QueueState_add_to_tail, METH_O, "Append units to the tail."},
    {"tail_bytes", (PyCFunction)(void (*)(void))QueueState_tail_bytes, METH_FASTCALL, "A part of the tail."},
    {"shorten_tail", (PyCFunction)QueueState_shorten_tail, METH_O, "Keep only the newest bytes of the tail."},
    {"cut_tail", (PyCFunction)QueueState_cut_tail, METH_O, "Keep only the oldest bytes of the tail."},
    {NULL, NULL, 0, NULL},
};

static PyObject *QueueState_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(named)) {
    QueueStateObject *self = (QueueStateObject *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->at = slab_alloc(&queue_state_pool);
    if (self->at == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    *self->at = (QueueState){.owner = (PyObject *)self, .full_at = MAX_TAIL};
    return (PyObject *)self;
}

static void QueueState_dealloc(QueueStateObject *self) {
    if (self->at != NULL) {
        if (self->at->tail != NULL) free_tail(self->at->tail, self->at->tail_room);
        slab_free(&queue_state_pool, self->at);
    }
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject QueueStateType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.native._native.QueueState",
    .tp_doc = "In-memory state of a consume queue.",
    .tp_basicsize = sizeof(QueueStateObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = QueueState_new,
    .tp_dealloc = (destructor)QueueState_dealloc,
    .tp_members = QueueState_members,
    .tp_getset = QueueState_getset,
    .tp_methods = QueueState_methods,
};

static SlabPool counter_pool = {sizeof(Counter), NULL, 0};

typedef struct {
    PyObject_HEAD
    Counter *at;
} CounterObject;

static Counter *counter_of(PyObject *count) { return ((CounterObject *)count)->at; }

static PyObject *Counter_get(CounterObject *self, void *offset) { return get_number(self->at, offset); }

static int Counter_set(CounterObject *self, PyObject *value, void *offset) { return set_number(self->at, value, offset); }

#define COUNTER_NUMBER(name) \
    {#name, (getter)Counter_get, (setter)Counter_set, NULL, (void *)offsetof(Counter, name)}

#define COUNTER_BOUND(name, number) \
    {#name, (getter)Counter_get, (setter)Counter_set, NULL, (void *)offsetof(Counter, over[number])}

static PyGetSetDef Counter_getset[] = {
    COUNTER_NUMBER(times),
    COUNTER_NUMBER(nums),
    COUNTER_NUMBER(size),
    COUNTER_BOUND(over_1k, 0),
    COUNTER_BOUND(over_4k, 1),
    COUNTER_BOUND(over_512k, 2),
    COUNTER_BOUND(over_1m, 3),
    COUNTER_BOUND(over_2m, 4),
    COUNTER_BOUND(over_4m, 5),
    {NULL, NULL, NULL, NULL, NULL},
};

static PyObject *Counter_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(named)) {
    CounterObject *self = (CounterObject *)type->tp_alloc(type, 0);
    if (self == NULL) return NULL;
    self->at = slab_alloc(&counter_pool);
    if (self->at == NULL) {
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    *self->at = (Counter){.owner = (PyObject *)self};
    return (PyObject *)self;
}

static void Counter_dealloc(CounterObject *self) {
    if (self->at != NULL) slab_free(&counter_pool, self->at);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyTypeObject CounterType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.native._native.Counter",
    .tp_doc = "Number of requests, of messages in them and of their bytes.",
    .tp_basicsize = sizeof(CounterObject),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_new = Counter_new,
    .tp_dealloc = (destructor)Counter_dealloc,
    .tp_getset = Counter_getset,
};
