/* Telling the system how a map is used next, piece by piece: the compiled twin of kernel/advising.py. The interpreter lock
 * is given up once for all of them: a thread that wants it back after every piece wakes up again and again while the
 * event loop is busy, and each time costs the loop a system call.
 */
#ifndef ORBITMQ_ADVISING_H
#define ORBITMQ_ADVISING_H
#include "bytes.h"
#include <sys/mman.h>
#include <unistd.h>

#define MOST_ADVICES 4

/* advise(buffer, start, end, step, *advices) */
static PyObject *advise(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t numbers[3];
    int advices[MOST_ADVICES], advice_count = (int)count - 4;
    if (advice_count < 1 || advice_count > MOST_ADVICES) {
        PyErr_SetString(PyExc_TypeError, "advise(buffer, start, end, step, *advices)");
        return NULL;
    }
    for (int n = 0; n < 3; n++) numbers[n] = PyLong_AsSsize_t(args[1 + n]);
    for (int n = 0; n < advice_count; n++) advices[n] = (int)PyLong_AsLong(args[4 + n]);
    Py_buffer map;
    if (PyErr_Occurred() || PyObject_GetBuffer(args[0], &map, PyBUF_SIMPLE) < 0) return NULL;
    Py_ssize_t start = numbers[0], end = numbers[1], step = numbers[2];
    if (end > map.len) end = map.len;
    if (start < 0 || step < 1) {
        PyBuffer_Release(&map);
        PyErr_SetString(PyExc_ValueError, "a part of a map is advised in steps");
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    int is_refused = 0;
    start -= start % sysconf(_SC_PAGESIZE);
    for (Py_ssize_t at = start; at < end && !is_refused; at += step)
        for (int n = 0; n < advice_count && !is_refused; n++)
            is_refused = madvise((char *)map.buf + at, end - at < step ? end - at : step, advices[n]) != 0;
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&map);
    Py_RETURN_NONE;
}

#endif
