/* Records of a queue for one answer: the compiled twin of gathering.py, which says what is done. */
#ifndef ORBITMQ_GATHERING_H
#define ORBITMQ_GATHERING_H
#include "bytes.h"

#define FILLER_SIZE 0x7FFFFFFF

/* What units lead to: how many records are given, their size, and where they lie in the log. */
typedef struct { Py_ssize_t count; int64_t total, first, last, stop; } Gathered;

/* As many as have so many bytes together, but at least one; 0 if there are none or fillers among them. */
static int find_records(const uint8_t *units, Py_ssize_t count, int64_t most_bytes, Gathered *found) {
    int64_t total = 0;
    for (Py_ssize_t n = 0; n < count; n++) {
        int32_t size = (int32_t)get32(units + n * UNIT_SIZE + 8);
        if (size <= 0 || size == FILLER_SIZE) return 0;
        total += size;
    }
    if (count == 0) return 0;
    while (total > most_bytes && count > 1) total -= get32(units + --count * UNIT_SIZE + 8);
    const uint8_t *unit = units + (count - 1) * UNIT_SIZE;
    int64_t last = (int64_t)get64(unit);
    *found = (Gathered){count, total, (int64_t)get64(units), last, last + get32(unit + 8)};
    return 1;
}

/* Copy them one behind the other; 0 if one is not in this file of the log, whose first byte has the offset base. */
static int copy_records(const uint8_t *units, const Gathered *found, int64_t base, const Py_buffer *log, uint8_t *out) {
    if (found->total == found->stop - found->first) {
        memcpy(out, (uint8_t *)log->buf + (found->first - base), found->total);
        return 1;
    }
    for (Py_ssize_t n = 0; n < found->count; n++) {
        int64_t at = (int64_t)get64(units + n * UNIT_SIZE) - base;
        Py_ssize_t size = get32(units + n * UNIT_SIZE + 8);
        if (at < 0 || at > log->len - size) return 0;
        memcpy(out, (uint8_t *)log->buf + at, size);
        out += size;
    }
    return 1;
}

static PyObject *gather(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t argument_count) {
    if (argument_count != 7 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "gather(units, buffer, base, end, most_bytes, copied, copied_each)");
        return NULL;
    }
    long long base = PyLong_AsLongLong(args[2]), end = PyLong_AsLongLong(args[3]);
    long long most_bytes = PyLong_AsLongLong(args[4]);
    long long copied = PyLong_AsLongLong(args[5]), copied_each = PyLong_AsLongLong(args[6]);
    if (PyErr_Occurred()) return NULL;
    const uint8_t *units = (uint8_t *)PyBytes_AS_STRING(args[0]);
    Gathered found;
    if (!find_records(units, PyBytes_GET_SIZE(args[0]) / UNIT_SIZE, most_bytes, &found)) Py_RETURN_NONE;
    Py_buffer log;
    if (PyObject_GetBuffer(args[1], &log, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *records = NULL;
    int is_inside = found.first >= base && found.stop <= end && found.stop - base <= log.len;
    if (is_inside && found.total != found.stop - found.first && found.total <= copied + copied_each * found.count) {
        records = PyBytes_FromStringAndSize(NULL, found.total);
        if (records == NULL) {
            PyBuffer_Release(&log);
            return NULL;
        }
        is_inside = copy_records(units, &found, base, &log, (uint8_t *)PyBytes_AS_STRING(records));
    }
    PyBuffer_Release(&log);
    if (!is_inside) {
        Py_XDECREF(records);
        Py_RETURN_NONE;
    }
    if (records == NULL) records = Py_NewRef(Py_None);
    return Py_BuildValue("(nLLLN)", found.count, (long long)found.total, (long long)found.last, (long long)found.stop, records);
}

#endif
