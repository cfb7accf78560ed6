/* PULL: answers pulls that find messages, from received bytes to the response. */
#ifndef ORBITMQ_PULL_H
#define ORBITMQ_PULL_H
#include "base/byte_order.h"

static PyTypeObject PullServerType;

/* The readable part of the log: first and last offset, maximum distance to the end, the offset from which records were
 * written by this process and need no check; and callables for a log file and for the ranges to fetch from the disk. */
typedef struct { int64_t first, end, window, checked_from, file_size; PyObject *buffer_at, *cold_ranges; double now; } LogWindow;

static int64_t select_units(ByteBuffer *selected, ByteBuffer *skipped, PyObject *codes, int64_t most, int64_t most_bytes,
                            const uint8_t *units, int64_t count, const LogWindow *log_window);
static PyObject *call_read(PyObject *read, int64_t number, int64_t most);

#endif
