/* UPDATE_CONSUMER_OFFSET and QUERY_CONSUMER_OFFSET: read and change offsets in the table of the broker. Twin of
 * broker/offsets/processor.py and of commit in broker/offsets/table.py. Only offsets that are there are served: a first
 * offset is counted, one that goes back is logged, and what is refused gets another response. Each of them ends the batch. */
#include "broker/offsets/offset_server.h"
#include "base/results.h"
#include "broker/deferral.h"
#include "protocol/remoting_header.h"

#define QUERY_CONSUMER_OFFSET 14
#define UPDATE_CONSUMER_OFFSET 15

enum { OFFSET_GROUP, OFFSET_TOPIC, OFFSET_QUEUE, OFFSET_NEEDED, OFFSET_COMMIT = OFFSET_NEEDED, OFFSET_SET_ZERO, OFFSET_ONLY_FORWARD };

/* Parts of the JSON responses: of a commit up to the opaque and behind it; of a query up to the offset, the opaque, the end. */
enum { COMMITTED_PART, QUERIED_PART = 2, OFFSET_PARTS = 5 };

typedef struct {
    PyObject_HEAD
    PyObject *languages, *json_parts, *missing;
    PyObject *routes; /* by group and topic, the offsets by queue id, which belong to the broker's table */
    PyObject *last_key, *last_offsets; /* of the route that was used last: borrowed from the routes */
    long language, version;
    ByteBuffer key, answers;
} OffsetServer;

typedef struct { int64_t queue_id, commit; } OffsetRequest;

static int which_of_offset(Slice name) {
    switch (name.size) {
        case 5: return slice_equals(name, "topic") ? OFFSET_TOPIC : -1;
        case 7: return slice_equals(name, "queueId") ? OFFSET_QUEUE : -1;
        case 11: return slice_equals(name, "onlyForward") ? OFFSET_ONLY_FORWARD : -1;
        case 12: return slice_equals(name, "commitOffset") ? OFFSET_COMMIT : -1;
        case 13: return slice_equals(name, "consumerGroup") ? OFFSET_GROUP : -1;
        case 17: return slice_equals(name, "setZeroIfNotFound") ? OFFSET_SET_ZERO : -1;
        default: return -1;
    }
}

static int read_offset_request(const Request *request, OffsetRequest *read) {
    const Slice *fields = request->fields;
    const uint32_t needed = (1u << OFFSET_NEEDED) - 1, present = request->present;
    if (request->escaped || request->non_ascii || request->flag & ~(int64_t)ONEWAY || (present & needed) != needed ||
        present & 1u << OFFSET_ONLY_FORWARD || !int32_of(fields[OFFSET_QUEUE], &read->queue_id) || read->queue_id < 0)
        return 0;
    if (request->code == UPDATE_CONSUMER_OFFSET)
        return present & 1u << OFFSET_COMMIT && number_of(fields[OFFSET_COMMIT], 0, &read->commit);
    return request->code == QUERY_CONSUMER_OFFSET && (!(present & 1u << OFFSET_SET_ZERO) ||
           slice_equals(fields[OFFSET_SET_ZERO], "true") || slice_equals(fields[OFFSET_SET_ZERO], "false"));
}

/* The offsets of a group in a topic: borrowed, or NULL with an error or with a missing route. */
static PyObject *find_offsets(OffsetServer *self, const Slice *fields) {
    Slice group = fields[OFFSET_GROUP], topic = fields[OFFSET_TOPIC];
    self->key.size = 0;
    uint8_t *at = buffer_extend(&self->key, 4 + group.size + topic.size);
    if (at == NULL) return NULL;
    put32(at, (uint32_t)group.size);
    put_bytes(put_bytes(at + 4, group.at, group.size), topic.at, topic.size);
    if (self->last_key != NULL && PyBytes_GET_SIZE(self->last_key) == self->key.size &&
        memcmp(PyBytes_AS_STRING(self->last_key), self->key.data, self->key.size) == 0)
        return self->last_offsets;
    PyObject *key = buffer_bytes(&self->key);
    if (key == NULL) return NULL;
    PyObject *offsets = PyDict_GetItemWithError(self->routes, key); /* borrowed */
    if (offsets != NULL) {
        Py_XSETREF(self->last_key, key);
        self->last_offsets = offsets;
        return offsets;
    }
    if (!PyErr_Occurred())
        Py_XSETREF(self->missing, Py_BuildValue("(Os#s#)", key, group.at, group.size, topic.at, topic.size));
    Py_DECREF(key);
    return NULL;
}

static int put_offset_answer(OffsetServer *self, int64_t opaque, int is_binary, int is_query, int64_t offset) {
    Py_ssize_t before = self->answers.size;
    uint8_t *start = buffer_extend(&self->answers, PREFIX_SIZE + BINARY_FIXED + parts_size(self->json_parts) + 64);
    if (start == NULL) return -1;
    uint8_t *at = start + PREFIX_SIZE;
    if (is_binary) {
        put16(at, 0);
        at[2] = self->language;
        put16(at + 3, self->version);
        put32(at + 5, opaque);
        put32(at + 9, 1);
        put32(at + 13, 0);
        uint8_t *fields = at + BINARY_FIXED + 4;
        at = is_query ? put_sized(put_bytes(fields, "\0\6offset", 8), offset) : fields;
        put32(fields - 4, at - fields);
    } else if (is_query) {
        at = put_decimal(put_part(at, self->json_parts, QUERIED_PART), offset);
        at = put_decimal(put_part(at, self->json_parts, QUERIED_PART + 1), opaque);
        at = put_part(at, self->json_parts, QUERIED_PART + 2);
    } else {
        at = put_decimal(put_part(at, self->json_parts, COMMITTED_PART), opaque);
        at = put_part(at, self->json_parts, COMMITTED_PART + 1);
    }
    self->answers.size = before + end_frame(start, at, is_binary);
    return 0;
}

/* Serve a request with this offset in the table: 1, or 0 if it is for the Python path, or -1 for an error. */
static int serve_known(PyObject *offsets, PyObject *queue, const Request *request, const OffsetRequest *read, int64_t known, int *is_changed) {
    if (known < 0) return 0;
    if (request->code == QUERY_CONSUMER_OFFSET || read->commit == known) return 1;
    if (read->commit < known) return 0;
    PyObject *offset = PyLong_FromLongLong(read->commit);
    int is_set = offset == NULL ? -1 : PyDict_SetItem(offsets, queue, offset);
    Py_XDECREF(offset);
    *is_changed = 1;
    return is_set < 0 ? -1 : 1;
}

static int serve_offset(OffsetServer *self, const uint8_t *header, Py_ssize_t size, int is_binary, Request *request, int *is_changed) {
    OffsetRequest read;
    if (!(is_binary ? read_binary(header, header + size, which_of_offset, request)
                    : read_json(header, header + size, self->languages, which_of_offset, request)) ||
        !read_offset_request(request, &read))
        return 0;
    PyObject *offsets = find_offsets(self, request->fields);
    if (offsets == NULL) return PyErr_Occurred() ? -1 : 0;
    PyObject *queue = PyLong_FromLongLong(read.queue_id);
    PyObject *known = queue == NULL ? NULL : PyDict_GetItemWithError(offsets, queue); /* borrowed */
    int64_t offset = known == NULL ? -1 : PyLong_AsLongLong(known);
    int served = PyErr_Occurred() ? -1 : serve_known(offsets, queue, request, &read, offset, is_changed);
    Py_XDECREF(queue);
    if (served == 1 && !(request->flag & ONEWAY) &&
        put_offset_answer(self, request->opaque, is_binary, request->code == QUERY_CONSUMER_OFFSET, offset) < 0)
        return -1;
    return served;
}

/* serve(data) */
static PyObject *OffsetServer_serve(OffsetServer *self, PyObject *data) {
    if (!PyBytes_Check(data)) {
        PyErr_SetString(PyExc_TypeError, "serve(data)");
        return NULL;
    }
    Py_CLEAR(self->missing);
    self->answers.size = 0;
    long long requests = 0, commits = 0;
    int is_changed = 0;
    const uint8_t *start = (uint8_t *)PyBytes_AS_STRING(data), *at = start, *end = start + PyBytes_GET_SIZE(data);
    while (end - at >= PREFIX_SIZE) {
        uint32_t length = get32(at), word = get32(at + 4);
        Py_ssize_t header_size = word & 0xFFFFFF;
        /* Without a body, as all clients send it. */
        if (length > INT32_MAX || word >> 24 > 1 || header_size > MAX_HEADER || header_size + 4 != (Py_ssize_t)length || end - at - 4 < (Py_ssize_t)length) break;
        Request request;
        int served = serve_offset(self, at + PREFIX_SIZE, header_size, word >> 24, &request, &is_changed);
        if (served < 0) return NULL;
        if (served == 0) break;
        at += 4 + (Py_ssize_t)length;
        requests++;
        commits += request.code == UPDATE_CONSUMER_OFFSET;
    }
    return make_result(RESULT_OFFSETS_SERVED, from_int(at - start), from_int(requests), from_int(commits),
                       PyBool_FromLong(is_changed), buffer_bytes(&self->answers));
}

static PyObject *OffsetServer_add_route(OffsetServer *self, PyObject *args) {
    PyObject *key, *offsets;
    if (!PyArg_ParseTuple(args, "SO!", &key, &PyDict_Type, &offsets)) return NULL;
    Py_CLEAR(self->last_key);
    if (PyDict_SetItem(self->routes, key, offsets) < 0) return NULL;
    Py_RETURN_NONE;
}

static PyObject *OffsetServer_clear_routes(OffsetServer *self, PyObject *Py_UNUSED(unused)) {
    Py_CLEAR(self->last_key);
    PyDict_Clear(self->routes);
    Py_RETURN_NONE;
}

static PyObject *OffsetServer_get_missing_route(OffsetServer *self, void *Py_UNUSED(unused)) {
    return Py_NewRef(self->missing == NULL ? Py_None : self->missing);
}

static int OffsetServer_init(OffsetServer *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"languages", "json_parts", "language", "version", NULL};
    PyObject *languages, *json_parts;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$O!O!ll", names, &PyTuple_Type, &languages, &PyTuple_Type, &json_parts,
                                     &self->language, &self->version))
        return -1;
    if (!are_bytes(languages) || !are_bytes(json_parts)) return -1;
    if (PyTuple_GET_SIZE(json_parts) != OFFSET_PARTS) {
        PyErr_SetString(PyExc_ValueError, "the responses have one value and two");
        return -1;
    }
    PyObject *routes = PyDict_New();
    if (routes == NULL) return -1;
    Py_CLEAR(self->last_key);
    Py_XSETREF(self->routes, routes);
    Py_XSETREF(self->languages, Py_NewRef(languages));
    Py_XSETREF(self->json_parts, Py_NewRef(json_parts));
    return 0;
}

static int OffsetServer_traverse(OffsetServer *self, visitproc visit, void *arg) {
    Py_VISIT(self->routes);
    return 0;
}

static int OffsetServer_clear(OffsetServer *self) {
    Py_CLEAR(self->last_key);
    Py_CLEAR(self->routes);
    return 0;
}

static void OffsetServer_dealloc(OffsetServer *self) {
    PyObject_GC_UnTrack(self);
    OffsetServer_clear(self);
    Py_XDECREF(self->languages);
    Py_XDECREF(self->json_parts);
    Py_XDECREF(self->missing);
    buffer_free(&self->key);
    buffer_free(&self->answers);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMethodDef OffsetServer_methods[] = {
    {"serve", (PyCFunction)OffsetServer_serve, METH_O, "Serve the requests that data begins with."},
    {"add_route", (PyCFunction)OffsetServer_add_route, METH_VARARGS, "Open a route to the offsets of a group in a topic."},
    {"clear_routes", (PyCFunction)OffsetServer_clear_routes, METH_NOARGS, "Drop all routes."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef OffsetServer_getset[] = {
    {"missing_route", (getter)OffsetServer_get_missing_route, NULL, "The route for whose lack the last call ended, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject OffsetServerType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.native._native.OffsetServer",
    .tp_doc = "Reads and changes consumer offsets of groups and topics that have a route.",
    .tp_basicsize = sizeof(OffsetServer),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)OffsetServer_init,
    .tp_dealloc = (destructor)OffsetServer_dealloc,
    .tp_traverse = (traverseproc)OffsetServer_traverse,
    .tp_clear = (inquiry)OffsetServer_clear,
    .tp_methods = OffsetServer_methods,
    .tp_getset = OffsetServer_getset,
};
