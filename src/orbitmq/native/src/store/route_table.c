/* Route table: the queues to which records may be appended, and what each gets in one batch. */
#include "store/route_table.h"
#include "base/huge_pages.h"
#include "store/queue_state.h"

static uint32_t route_hash(const uint8_t *topic, Py_ssize_t size, int64_t queue_id, int is_deferral) {
    uint64_t hash = hash_on(17 + is_deferral, topic, size);
    hash = (hash ^ (uint64_t)queue_id * 0x9E3779B97F4A7C15ull) * 0xD6E8FEB86659FD93ull;
    return hash >> 32;
}

static QueueRoute *find_hashed_route(const Batcher *self, uint32_t hash, const uint8_t *topic, Py_ssize_t size, int64_t queue_id,
                              int is_deferral) {
    if (self->slot_room == 0) return NULL;
    for (Py_ssize_t at = hash & (self->slot_room - 1);; at = (at + 1) & (self->slot_room - 1)) {
        if (self->slots[at].number == 0) return NULL;
        if (self->slots[at].hash != hash) continue;
        QueueRoute *route = &self->routes[self->slots[at].number - 1];
        if (route->queue_id == queue_id && route->topic_size == size && route->is_deferral == is_deferral &&
            memcmp(PyBytes_AS_STRING(route->field) + PyBytes_GET_SIZE(route->field) - size, topic, size) == 0)
            return route;
    }
}

static QueueRoute *find_route(const Batcher *self, const uint8_t *topic, Py_ssize_t size, int64_t queue_id, int is_deferral) {
    return find_hashed_route(self, route_hash(topic, size, queue_id, is_deferral), topic, size, queue_id, is_deferral);
}

/* Prefetch what a message will need, in steps: each needs what the one before has fetched. */

static void prefetch_slot(const Batcher *self, uint32_t hash) {
    if (self->slot_room > 0) __builtin_prefetch(&self->slots[hash & (self->slot_room - 1)]);
}

static void prefetch_route(const Batcher *self, uint32_t hash) {
    if (self->slot_room == 0) return;
    RouteSlot first = self->slots[hash & (self->slot_room - 1)];
    if (first.number > 0) __builtin_prefetch(&self->routes[first.number - 1], 1);
}

static void prefetch_queue(const QueueRoute *route) {
    __builtin_prefetch(route->queue, 1);
    __builtin_prefetch((const char *)route->queue + CACHE_LINE, 1);
    __builtin_prefetch(route->count, 1);
}

/* Drop what was not entered. */
static void untouch(Batcher *self) {
    for (Py_ssize_t n = 0; n < self->touched_count; n++) {
        QueueRoute *route = &self->routes[self->touched[n]];
        route->is_touched = 0;
        drop_pending(route->queue);
    }
    self->touched_count = 0;
}

static void drop_routes(Batcher *self) {
    untouch(self);
    QueueRoute *routes = self->routes;
    Py_ssize_t count = self->route_count;
    free(self->slots);
    self->routes = NULL;
    self->slots = NULL;
    self->route_room = self->route_count = self->slot_room = 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        if (routes[at].queue != NULL) Py_DECREF(routes[at].queue->owner);
        if (routes[at].count != NULL) Py_DECREF(routes[at].count->owner);
        Py_DECREF(routes[at].topic);
        Py_DECREF(routes[at].field);
    }
    free(routes);
}

static PyObject *Batcher_clear_routes(Batcher *self, PyObject *Py_UNUSED(unused)) {
    drop_routes(self);
    Py_RETURN_NONE;
}

static void put_slot(Batcher *self, uint32_t hash, Py_ssize_t number) {
    Py_ssize_t at = hash & (self->slot_room - 1);
    while (self->slots[at].number != 0) at = (at + 1) & (self->slot_room - 1);
    self->slots[at] = (RouteSlot){hash, (uint32_t)number};
}

/* Grow to twice as many routes; -1 for an error. */
static int grow_routes(Batcher *self) {
    Py_ssize_t room = self->route_room ? 2 * self->route_room : 32;
    QueueRoute *routes = alloc_lines(room * sizeof *routes);
    RouteSlot *slots = alloc_zeroed_lines(2 * room * sizeof *slots);
    if (routes == NULL || slots == NULL) {
        free(routes);
        free(slots);
        PyErr_NoMemory();
        return -1;
    }
    if (self->route_count > 0) memcpy(routes, self->routes, self->route_count * sizeof *routes);
    free(self->routes);
    RouteSlot *before = self->slots;
    Py_ssize_t room_before = self->slot_room;
    self->routes = routes;
    self->route_room = room;
    self->slots = slots;
    self->slot_room = 2 * room;
    for (Py_ssize_t at = 0; at < room_before; at++)
        if (before[at].number != 0) put_slot(self, before[at].hash, before[at].number);
    free(before);
    return 0;
}

/* Bind a route to a queue and a counter, each of which may be None. */
static void join(QueueRoute *route, PyObject *queue, PyObject *counted) {
    route->queue = queue == Py_None ? NULL : queue_state_of(Py_NewRef(queue));
    route->count = counted == Py_None ? NULL : counter_of(Py_NewRef(counted));
}

static PyObject *Batcher_add_route(Batcher *self, PyObject *args) {
    PyObject *topic, *field, *queue, *counted = Py_None;
    long long queue_id;
    unsigned int magic;
    int is_deferral;
    if (!PyArg_ParseTuple(args, "USLIOp|O", &topic, &field, &queue_id, &magic, &queue, &is_deferral, &counted)) return NULL;
    if ((queue != Py_None && !PyObject_TypeCheck(queue, &QueueStateType)) ||
        (counted != Py_None && !PyObject_TypeCheck(counted, &CounterType))) {
        PyErr_SetString(PyExc_TypeError, "a route needs a native QueueState, and a native Counter or None");
        return NULL;
    }
    Py_ssize_t size;
    const uint8_t *name = (const uint8_t *)PyUnicode_AsUTF8AndSize(topic, &size);
    if (name == NULL) return NULL;
    if (!PyUnicode_IS_ASCII(topic) || PyBytes_GET_SIZE(field) < size || size > UINT16_MAX || queue_id != (int32_t)queue_id) {
        PyErr_SetString(PyExc_ValueError, "a route needs an ASCII topic, its field in records, and a queue id");
        return NULL;
    }
    uint32_t hash = route_hash(name, size, queue_id, is_deferral);
    QueueRoute *there = find_hashed_route(self, hash, name, size, queue_id, is_deferral);
    if (there != NULL) {
        there->magic = magic;
        Py_SETREF(there->field, Py_NewRef(field));
        PyObject *queue_before = there->queue == NULL ? NULL : there->queue->owner;
        PyObject *count_before = there->count == NULL ? NULL : there->count->owner;
        join(there, queue, counted);
        Py_XDECREF(queue_before);
        Py_XDECREF(count_before);
        Py_RETURN_NONE;
    }
    if (self->route_count == self->route_room && grow_routes(self) < 0) return NULL;
    QueueRoute route = {0};
    join(&route, queue, counted);
    route.topic = Py_NewRef(topic);
    route.field = Py_NewRef(field);
    route.topic_size = size;
    route.queue_id = queue_id;
    route.is_deferral = is_deferral;
    route.magic = magic;
    route.prefix_hash = hash_on(hash_on(0, name, size), (const uint8_t *)"#", 1);
    self->routes[self->route_count++] = route;
    put_slot(self, hash, self->route_count);
    Py_RETURN_NONE;
}

/* Numbers of a route's queue including its pending units: of the next record that is appended, and of the next that
 * readers see. */

static int64_t next_in(const QueueRoute *route) {
    const QueueState *queue = route->queue;
    return queue->next_offset + queue->pending / UNIT_SIZE;
}

static int64_t next_shown(const QueueRoute *route) {
    const QueueState *queue = route->queue;
    return queue->end + queue->pending / UNIT_SIZE;
}

/* Offset behind the last record of the queue. */
static int64_t stop_of(const QueueRoute *route) {
    const QueueState *queue = route->queue;
    if (queue->pending == 0) return queue->max_physical;
    const uint8_t *last = pending_of(route->queue) + queue->pending - UNIT_SIZE;
    return (int64_t)(get64(last) + get32(last + 8));
}

static uint8_t *unit_room(const QueueRoute *route) { return room_for_unit(route->queue, UNIT_SIZE); }

static void put_unit(uint8_t *unit, int64_t offset, uint32_t size, int64_t code) {
    put64(unit, offset);
    put32(unit + 8, size);
    put64(unit + 12, code);
}

/* Count a record, whose unit is behind the tail if it is dispatched at once. */
static void count_record(QueueRoute *route, uint32_t size) {
    route->bytes += size;
    route->queue->pending += UNIT_SIZE;
}

/* True if readers see all records of a queue, and one at the end of the log is behind them. */
static int is_caught_up(const QueueRoute *route, int64_t log_end) {
    const QueueState *queue = route->queue;
    return queue->next_offset == queue->end && queue->max_physical <= log_end;
}

/* 1 if the queue can get records in this batch, 0 if not, -1 for an error. */
static int touch(Batcher *self, QueueRoute *route) {
    if (route->queue->pending) return 0; /* through another route */
    if (self->touched_count == self->touched_room) {
        Py_ssize_t room = self->touched_room ? 2 * self->touched_room : 64;
        Py_ssize_t *touched = PyMem_Realloc(self->touched, room * sizeof *touched);
        if (touched == NULL) { PyErr_NoMemory(); return -1; }
        self->touched = touched;
        self->touched_room = room;
    }
    self->touched[self->touched_count++] = route - self->routes;
    route->is_touched = 1;
    route->requests = 0;
    route->bytes = 0;
    return 1;
}

static int Batcher_traverse(Batcher *self, visitproc visit, void *arg) {
    for (Py_ssize_t at = 0; at < self->route_count; at++)
        if (self->routes[at].queue != NULL) Py_VISIT(self->routes[at].queue->owner);
    Py_VISIT(self->crc32);
    Py_VISIT(self->unique_ids);
    return 0;
}

static int Batcher_clear(Batcher *self) {
    drop_routes(self);
    Py_CLEAR(self->crc32);
    Py_CLEAR(self->unique_ids);
    return 0;
}

static void Batcher_dealloc(Batcher *self) {
    PyObject_GC_UnTrack(self);
    Batcher_clear(self);
    Py_XDECREF(self->languages);
    Py_XDECREF(self->json_parts);
    Py_XDECREF(self->binary_parts);
    Py_XDECREF(self->timed_json_parts);
    Py_XDECREF(self->timed_binary_parts);
    Py_XDECREF(self->broker_name);
    Py_XDECREF(self->delays);
    Py_XDECREF(self->revive_topic);
    Py_XDECREF(self->batch_json);
    Py_XDECREF(self->batch_binary);
    Py_XDECREF(self->host_hex);
    Py_XDECREF(self->added);
    Py_XDECREF(self->store_host);
    Py_XDECREF(self->missing);
    buffer_free(&self->answers);
    buffer_free(&self->hashes);
    buffer_free(&self->offsets);
    buffer_free(&self->text);
    buffer_free(&self->suffix);
    buffer_free(&self->half_routes);
    buffer_free(&self->acked_ranges);
    buffer_free(&self->items);
    buffer_free(&self->made_key);
    PyMem_Free(self->touched);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *Batcher_get_missing_route(Batcher *self, void *Py_UNUSED(unused)) {
    return Py_NewRef(self->missing == NULL ? Py_None : self->missing);
}

static PyGetSetDef Batcher_getset[] = {
    {"missing_route", (getter)Batcher_get_missing_route, NULL, "The route for whose lack the last call ended, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
