/* The module: what Python sees of the kernel's parts. */
#include "bytes.h"
#include "acknowledging.h"
#include "advising.h"
#include "delivering.h"
#include "ends.h"
#include "gathering.h"
#include "index_checking.h"
#include "indexing.h"
#include "lanes.h"
#include "pulling.h"
#include "sending.h"

/* What takes sends, and what all types that store have in common */

/* Address and port as they stand in message ids. */
static PyObject *hex_text(PyObject *host) {
    Py_ssize_t size = PyBytes_GET_SIZE(host);
    PyObject *text = PyBytes_FromStringAndSize(NULL, 2 * size);
    for (Py_ssize_t n = 0; text != NULL && n < size; n++) {
        uint8_t byte = PyBytes_AS_STRING(host)[n];
        PyBytes_AS_STRING(text)[2 * n] = "0123456789ABCDEF"[byte >> 4];
        PyBytes_AS_STRING(text)[2 * n + 1] = "0123456789ABCDEF"[byte & 15];
    }
    return text;
}

static int Runs_init(Runs *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"languages", "json_parts", "binary_parts", "timed_json_parts", "timed_binary_parts", "language",
                            "version", "added", "store_host", "kept_flags", "max_body", "max_properties", "is_indexing",
                            "crc32", "broker_name", "precision", "longest", "delays", "batch_json", "batch_binary",
                            "is_deferred", NULL};
    PyObject *languages, *json_parts, *binary_parts, *timed_json_parts, *timed_binary_parts, *added, *store_host, *crc32;
    PyObject *broker_name, *delays, *batch_json, *batch_binary;
    long long kept_flags, precision, longest;
    PyTypeObject *tuple = &PyTuple_Type;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$O!O!O!O!O!llSSLnnpOSLLO!O!Sp", names, tuple, &languages, tuple,
                                     &json_parts, tuple, &binary_parts, tuple, &timed_json_parts, tuple,
                                     &timed_binary_parts, &self->language, &self->version, &added, &store_host,
                                     &kept_flags, &self->max_body, &self->max_properties, &self->is_indexing, &crc32,
                                     &broker_name, &precision, &longest, tuple, &delays, tuple, &batch_json, &batch_binary,
                                     &self->is_deferred))
        return -1;
    if (!are_bytes(languages) || !are_bytes(json_parts) || !are_bytes(binary_parts) || !are_bytes(timed_json_parts) ||
        !are_bytes(timed_binary_parts) || !are_bytes(batch_json))
        return -1;
    if (PyTuple_GET_SIZE(json_parts) != 7 || PyTuple_GET_SIZE(binary_parts) != 8 ||
        PyTuple_GET_SIZE(timed_json_parts) != 8 || PyTuple_GET_SIZE(timed_binary_parts) != 10 ||
        PyTuple_GET_SIZE(batch_json) != 3) {
        PyErr_SetString(PyExc_ValueError,
                        "an answer has 6 places in JSON and 7 in binary, with a handle 7 and 9, and that to a batch 2");
        return -1;
    }
    for (Py_ssize_t n = 0; n < PyTuple_GET_SIZE(delays); n++)
        if (PyLong_AsLongLong(PyTuple_GET_ITEM(delays, n)) == -1 && PyErr_Occurred()) return -1;
    /* One more than the longest number of milliseconds in 18 digits times 1,000 would not fit. */
    if (precision <= 0 || longest > INT64_MAX / 4000) {
        PyErr_SetString(PyExc_ValueError, "precision and the longest delay are numbers of milliseconds");
        return -1;
    }
    Py_XSETREF(self->languages, Py_NewRef(languages));
    Py_XSETREF(self->json_parts, Py_NewRef(json_parts));
    Py_XSETREF(self->binary_parts, Py_NewRef(binary_parts));
    Py_XSETREF(self->timed_json_parts, Py_NewRef(timed_json_parts));
    Py_XSETREF(self->timed_binary_parts, Py_NewRef(timed_binary_parts));
    PyObject *host_text = hex_text(store_host);
    if (host_text == NULL) return -1;
    Py_XSETREF(self->host_text, host_text);
    Py_XSETREF(self->batch_json, Py_NewRef(batch_json));
    Py_XSETREF(self->batch_binary, Py_NewRef(batch_binary));
    Py_XSETREF(self->broker_name, Py_NewRef(broker_name));
    Py_XSETREF(self->delays, Py_NewRef(delays));
    Py_XSETREF(self->added, Py_NewRef(added));
    Py_XSETREF(self->store_host, Py_NewRef(store_host));
    Py_XSETREF(self->crc32, Py_NewRef(crc32));
    self->kept_flags = kept_flags;
    self->precision = precision;
    self->longest = longest;
    return 0;
}

static int Runs_traverse(Runs *self, visitproc visit, void *arg) {
    for (Py_ssize_t at = 0; at < self->lane_count; at++)
        if (self->lanes[at].queue != NULL) Py_VISIT(self->lanes[at].queue->owner);
    Py_VISIT(self->crc32);
    return 0;
}

static int Runs_clear(Runs *self) {
    drop_lanes(self);
    Py_CLEAR(self->crc32);
    return 0;
}

static void Runs_dealloc(Runs *self) {
    PyObject_GC_UnTrack(self);
    Runs_clear(self);
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
    Py_XDECREF(self->host_text);
    Py_XDECREF(self->added);
    Py_XDECREF(self->store_host);
    Py_XDECREF(self->missing);
    pile_free(&self->answers);
    pile_free(&self->hashes);
    pile_free(&self->offsets);
    pile_free(&self->text);
    pile_free(&self->behind);
    pile_free(&self->half_places);
    pile_free(&self->settled);
    pile_free(&self->items);
    PyMem_Free(self->touched);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyObject *Runs_get_missing(Runs *self, void *Py_UNUSED(unused)) {
    return Py_NewRef(self->missing == NULL ? Py_None : self->missing);
}

static PyMethodDef Runs_methods[] = {
    {"take", (PyCFunction)(void (*)(void))Runs_take, METH_FASTCALL, "Store the sends that what was received begins with."},
    {"add_lane", (PyCFunction)Runs_add_lane, METH_VARARGS, "Let sends to a queue be stored."},
    {"clear_lanes", (PyCFunction)Runs_clear_lanes, METH_NOARGS, "Let none be stored any more."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef Runs_getset[] = {
    {"missing", (getter)Runs_get_missing, NULL, "The place whose lane the last run ended for.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyTypeObject RunsType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.kernel._native.SendRuns",
    .tp_doc = "Stores sends to queues that have a lane.",
    .tp_basicsize = sizeof(Runs),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)Runs_init,
    .tp_dealloc = (destructor)Runs_dealloc,
    .tp_traverse = (traverseproc)Runs_traverse,
    .tp_clear = (inquiry)Runs_clear,
    .tp_methods = Runs_methods,
    .tp_getset = Runs_getset,
};

/* The other types, which have less to know */

#include "walking.h"

static int Acks_init(Runs *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"languages", "json_parts", "store_host", "max_body", "max_properties", "is_indexing", "crc32",
                            "revive_topic", "revive_queues", "precision", "longest", NULL};
    PyObject *languages, *json_parts, *store_host, *crc32, *revive_topic;
    long long revive_queues, precision, longest;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$O!O!SnnpOSLLL", names, &PyTuple_Type, &languages, &PyTuple_Type,
                                     &json_parts, &store_host, &self->max_body, &self->max_properties,
                                     &self->is_indexing, &crc32, &revive_topic, &revive_queues, &precision, &longest))
        return -1;
    if (!are_bytes(languages) || !are_bytes(json_parts)) return -1;
    if (PyTuple_GET_SIZE(json_parts) != 2 || precision <= 0) {
        PyErr_SetString(PyExc_ValueError, "an answer has one place, and precision is a number of milliseconds");
        return -1;
    }
    Py_XSETREF(self->languages, Py_NewRef(languages));
    Py_XSETREF(self->json_parts, Py_NewRef(json_parts));
    Py_XSETREF(self->store_host, Py_NewRef(store_host));
    Py_XSETREF(self->crc32, Py_NewRef(crc32));
    Py_XSETREF(self->revive_topic, Py_NewRef(revive_topic));
    self->revive_queues = revive_queues;
    self->precision = precision;
    self->longest = longest;
    return 0;
}

static PyMethodDef Acks_methods[] = {
    {"take", (PyCFunction)(void (*)(void))Acks_take, METH_FASTCALL, "Store the acknowledgements that data begins with."},
    {"add_lane", (PyCFunction)Runs_add_lane, METH_VARARGS, "Let messages of a queue be acknowledged, or some be stored."},
    {"clear_lanes", (PyCFunction)Runs_clear_lanes, METH_NOARGS, "Let none be any more."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject AcksType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.kernel._native.AckRuns",
    .tp_doc = "Stores acknowledgements of messages of queues that have a lane.",
    .tp_basicsize = sizeof(Runs),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)Acks_init,
    .tp_dealloc = (destructor)Runs_dealloc,
    .tp_traverse = (traverseproc)Runs_traverse,
    .tp_clear = (inquiry)Runs_clear,
    .tp_methods = Acks_methods,
    .tp_getset = Runs_getset,
};

static int Deliveries_init(Runs *self, PyObject *args, PyObject *keywords) {
    static char *names[] = {"store_host", "max_body", "max_properties", "is_indexing", "crc32", NULL};
    PyObject *store_host, *crc32;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "$SnnpO", names, &store_host, &self->max_body, &self->max_properties,
                                     &self->is_indexing, &crc32))
        return -1;
    Py_XSETREF(self->store_host, Py_NewRef(store_host));
    Py_XSETREF(self->crc32, Py_NewRef(crc32));
    return 0;
}

static PyMethodDef Deliveries_methods[] = {
    {"deliver", (PyCFunction)(void (*)(void))Deliveries_deliver, METH_FASTCALL, "Store messages whose time has come."},
    {"deliver_units", (PyCFunction)(void (*)(void))Deliveries_deliver_units, METH_FASTCALL, "Store delayed messages."},
    {"add_lane", (PyCFunction)Runs_add_lane, METH_VARARGS, "Let messages for a queue be stored."},
    {"clear_lanes", (PyCFunction)Runs_clear_lanes, METH_NOARGS, "Let none be stored any more."},
    {NULL, NULL, 0, NULL},
};

static PyTypeObject DeliveriesType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "orbitmq.kernel._native.Deliveries",
    .tp_doc = "Stores messages that waited for a time in the queues that have a lane.",
    .tp_basicsize = sizeof(Runs),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)Deliveries_init,
    .tp_dealloc = (destructor)Runs_dealloc,
    .tp_traverse = (traverseproc)Runs_traverse,
    .tp_clear = (inquiry)Runs_clear,
    .tp_methods = Deliveries_methods,
    .tp_getset = Runs_getset,
};

static PyMethodDef functions[] = {
    {"advise", (PyCFunction)(void (*)(void))advise, METH_FASTCALL, "Say how a part of a map is used next, in steps."},
    {"follow", (PyCFunction)(void (*)(void))follow, METH_FASTCALL, "Follow the chain of a slot of the timer."},
    {"gather", (PyCFunction)(void (*)(void))gather, METH_FASTCALL, "The compiled twin of orbitmq.kernel.gathering.gather."},
    {"hash_keys", hash_keys, METH_O, "Hashes of keys as an index has them."},
    {"is_sound", is_sound, METH_VARARGS, "Whether the slots of an index file are those that its entries make."},
    {"cut_entries", cut_entries, METH_VARARGS, "Make the slots of an index file anew from its first entries."},
    {"put_entries", (PyCFunction)(void (*)(void))put_entries, METH_FASTCALL, "Put entries into an index file."},
    {"take_large", (PyCFunction)(void (*)(void))take_large, METH_FASTCALL, "Have large pages of a map in memory."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_native", .m_doc = "Messages into the log and out of it, compiled.", .m_size = -1,
    .m_methods = functions};

PyMODINIT_FUNC PyInit__native(void) {
    PyTypeObject *types[] = {&QueueEndType, &CountType, &RunsType, &AcksType, &DeliveriesType, &PullsType, &WalksType};
    make_crc_table();
    PyObject *made = PyModule_Create(&module);
    for (size_t n = 0; made != NULL && n < sizeof types / sizeof *types; n++)
        if (PyModule_AddType(made, types[n]) < 0) Py_CLEAR(made);
    return made;
}
