/* Index put: adds keys to an index file. */
#ifndef ORBITMQ_INDEX_PUT_H
#define ORBITMQ_INDEX_PUT_H
#include "base/byte_order.h"

#define INDEX_HEADER_SIZE 40
#define SLOT_SIZE 4
#define ENTRY_SIZE 20
#define SLOTS_AHEAD 16 /* slots are randomly distributed over 20 MB: prefetch this many entries ahead */

static PyObject *put_entries(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t argument_count);
static PyObject *hash_keys(PyObject *Py_UNUSED(module), PyObject *keys);

#endif
