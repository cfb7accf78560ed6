/* Records of a queue for one answer. */
#ifndef ORBITMQ_GATHER_RECORDS_H
#define ORBITMQ_GATHER_RECORDS_H
#include "base/byte_order.h"

/* The selected units: number and size of their records, and offsets of these in the log. */
typedef struct { Py_ssize_t count; int64_t total, first, last, stop; } Gathered;

static int find_records(const uint8_t *units, Py_ssize_t count, int64_t most_bytes, Gathered *found);
static int are_of_queue(const uint8_t *units, const Gathered *found, int64_t base, const Py_buffer *log, int64_t queue_id,
                        int64_t number, const uint32_t *skipped);
static int copy_records(const uint8_t *units, const Gathered *found, int64_t base, const Py_buffer *log, uint8_t *out);
static PyObject *gather_records(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t argument_count);

#endif
