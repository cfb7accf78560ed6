/* Records of a queue for one answer: the compiled twin of gathering.py, which says what is done. */
#ifndef ORBITMQ_GATHERING_H
#define ORBITMQ_GATHERING_H
#include "bytes.h"

#define FILLER_SIZE 0x7FFFFFFF

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
    Py_ssize_t count = PyBytes_GET_SIZE(args[0]) / UNIT_SIZE;
    long long total = 0;
    for (Py_ssize_t n = 0; n < count; n++) {
        int32_t size = (int32_t)get32(units + n * UNIT_SIZE + 8);
        if (size <= 0 || size == FILLER_SIZE) Py_RETURN_NONE;
        total += size;
    }
    if (count == 0) Py_RETURN_NONE;
    while (total > most_bytes && count > 1) total -= get32(units + --count * UNIT_SIZE + 8);
    const uint8_t *unit = units + (count - 1) * UNIT_SIZE;
    long long first = (long long)get64(units), last = (long long)get64(unit), stop = last + get32(unit + 8);
    Py_buffer log;
    if (PyObject_GetBuffer(args[1], &log, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *records = NULL;
    int is_inside = first >= base && stop <= end && stop - base <= log.len;
    if (is_inside && total != stop - first && total <= copied + copied_each * count) {
        records = PyBytes_FromStringAndSize(NULL, total);
        uint8_t *out = records == NULL ? NULL : (uint8_t *)PyBytes_AS_STRING(records);
        for (Py_ssize_t n = 0; out != NULL && n < count; n++) {
            long long at = (long long)get64(units + n * UNIT_SIZE) - base;
            Py_ssize_t size = get32(units + n * UNIT_SIZE + 8);
            if (at < 0 || at > log.len - size) {
                is_inside = 0;
                break;
            }
            memcpy(out, (uint8_t *)log.buf + at, size);
            out += size;
        }
        if (records == NULL) {
            PyBuffer_Release(&log);
            return NULL;
        }
    }
    PyBuffer_Release(&log);
    if (!is_inside) {
        Py_XDECREF(records);
        Py_RETURN_NONE;
    }
    if (records == NULL) records = Py_NewRef(Py_None);
    return Py_BuildValue("(nLLLN)", count, total, last, stop, records);
}

#endif
