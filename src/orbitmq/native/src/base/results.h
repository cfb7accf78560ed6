/* Named results: instances of the named tuples of orbitmq.native.results, filled here. */
#ifndef ORBITMQ_RESULTS_H
#define ORBITMQ_RESULTS_H
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdarg.h>

enum ResultKind {
    RESULT_GATHERED, RESULT_QUEUE_SHARE, RESULT_ENTERED, RESULT_SERVED, RESULT_STORED, RESULT_DELIVERED, RESULT_ACKED_RANGE,
    RESULT_ACKNOWLEDGED, RESULT_POPPED, RESULT_PULLED, RESULT_REPLAYED, RESULT_OFFSETS_SERVED,
    RESULT_KINDS
};

static const struct { const char *name; Py_ssize_t fields; } result_names[RESULT_KINDS] = {
    {"Gathered", 5}, {"QueueShare", 6}, {"Entered", 6}, {"Served", 3}, {"Stored", 6}, {"Delivered", 7}, {"AckedRange", 6},
    {"Acknowledged", 10}, {"Popped", 11}, {"Pulled", 6}, {"Replayed", 9}, {"OffsetsServed", 5}};

static PyTypeObject *result_types[RESULT_KINDS];

/* Get the types, once; -1 for an error. */
static int import_results(void) {
    PyObject *results = PyImport_ImportModule("orbitmq.native.results");
    if (results == NULL) return -1;
    for (int kind = 0; kind < RESULT_KINDS; kind++) {
        PyObject *type = PyObject_GetAttrString(results, result_names[kind].name);
        PyObject *fields = type == NULL ? NULL : PyObject_GetAttrString(type, "_fields");
        int fits = fields != NULL && PyTuple_Check(fields) && PyTuple_GET_SIZE(fields) == result_names[kind].fields &&
                   PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type);
        Py_XDECREF(fields);
        if (!fits) {
            if (!PyErr_Occurred()) PyErr_Format(PyExc_ImportError, "native results: %s has other fields", result_names[kind].name);
            Py_XDECREF(type);
            Py_DECREF(results);
            return -1;
        }
        Py_XSETREF(result_types[kind], (PyTypeObject *)type);
    }
    Py_DECREF(results);
    return 0;
}

/* A result of new references, which it takes over; NULL if one of them is NULL, with the error that this has left. */
static PyObject *make_result(enum ResultKind kind, ...) {
    Py_ssize_t count = result_names[kind].fields;
    PyObject *result = result_types[kind]->tp_alloc(result_types[kind], count);
    int is_whole = result != NULL;
    va_list items;
    va_start(items, kind);
    for (Py_ssize_t n = 0; n < count; n++) {
        PyObject *item = va_arg(items, PyObject *);
        if (item == NULL) is_whole = 0;
        if (result != NULL) PyTuple_SET_ITEM(result, n, item);
        else Py_XDECREF(item);
    }
    va_end(items);
    if (!is_whole) Py_CLEAR(result);
    return result;
}

static PyObject *from_int(long long number) { return PyLong_FromLongLong(number); }

#endif
