/* Advice about mapped memory, in steps. Twin of native/python/madvise.py. The interpreter lock is released once for all
 * steps: a thread that takes it back after each would wake up again and again while the event loop is busy, and each
 * time costs the loop a system call. */
#include "base/madvise.h"
#include <sys/mman.h>
#include <unistd.h>

#define MAX_ADVICES 4

#if defined(MADV_HUGEPAGE) && !defined(MADV_POPULATE_READ)
#define MADV_POPULATE_READ 22
#endif

/* advise(buffer, start, end, step, *advices) */
static PyObject *advise(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t numbers[3];
    int advices[MAX_ADVICES], advice_count = (int)count - 4;
    if (advice_count < 1 || advice_count > MAX_ADVICES) {
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

#ifdef MADV_HUGEPAGE

/* Make a page of this size resident for a moment; it begins at a multiple of its size. */
static void touch_page(char *page, size_t size) {
    *(volatile char *)page = 1;
    madvise(page, size, MADV_DONTNEED);
}

static void populate_pages(char *start, char *end, size_t size) {
    char *room = mmap(NULL, 2 * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *page = room == MAP_FAILED ? NULL : (char *)(((uintptr_t)room + size - 1) / size * size);
    /* Without huge pages, small ones are populated. */
    int are_huge = madvise(start, end - start, MADV_HUGEPAGE) == 0 && page != NULL && madvise(page, size, MADV_HUGEPAGE) == 0;
    int is_refused = 0;
    for (char *at = start; at < end && !is_refused; at += size) {
        if (are_huge) touch_page(page, size);
        is_refused = madvise(at, size, MADV_POPULATE_READ) != 0;
    }
    if (page != NULL) munmap(room, 2 * size);
}

#else

static void populate_pages(char *Py_UNUSED(start), char *Py_UNUSED(end), size_t Py_UNUSED(size)) {}

#endif

/* populate_huge_pages(buffer, start, end, size) */
static PyObject *populate_huge_pages(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    Py_ssize_t numbers[3] = {-1, 0, 0};
    for (int n = 0; count == 4 && n < 3; n++) numbers[n] = PyLong_AsSsize_t(args[1 + n]);
    if (PyErr_Occurred()) return NULL;
    Py_ssize_t start = numbers[0], end = numbers[1], size = numbers[2];
    if (start < 0 || size < 1 || start % size || end % size) {
        PyErr_SetString(PyExc_ValueError, "populate_huge_pages(buffer, start, end, size) takes whole pages");
        return NULL;
    }
    Py_buffer map;
    if (PyObject_GetBuffer(args[0], &map, PyBUF_SIMPLE) < 0) return NULL;
    if (end > map.len) end = map.len / size * size;
    Py_BEGIN_ALLOW_THREADS
    if (start < end) populate_pages((char *)map.buf + start, (char *)map.buf + end, size);
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&map);
    Py_RETURN_NONE;
}
