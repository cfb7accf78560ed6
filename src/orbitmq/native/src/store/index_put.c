/* Index put: adds keys to an index file. Twin of store/index/entries.py, which has the contract. */
#include "store/index_put.h"

/* A column of numbers in this machine's byte order. */
static int column_of(PyObject *from, Py_ssize_t item_size, Py_buffer *column) {
    if (PyObject_GetBuffer(from, column, PyBUF_FORMAT | PyBUF_C_CONTIGUOUS) < 0) return -1;
    if (column->itemsize == item_size && column->format != NULL && column->format[0] != '>' && column->format[0] != '!')
        return 0;
    PyBuffer_Release(column);
    PyErr_SetString(PyExc_TypeError, "hashes are 32 bits each, offsets and timestamps 64, in this machine's byte order");
    return -1;
}

static inline uint32_t seconds_since(int64_t begin, int64_t timestamp) {
    if (begin <= 0 || timestamp <= begin) return 0;
    uint64_t seconds = ((uint64_t)timestamp - (uint64_t)begin) / 1000;
    return seconds > 0x7FFFFFFF ? 0x7FFFFFFF : (uint32_t)seconds;
}

static Py_ssize_t put_columns(uint8_t *file, uint32_t slot_count, uint32_t number, int64_t begin, Py_ssize_t count,
                              const uint32_t *hashes, const int64_t *offsets, const int64_t *timestamps) {
    uint8_t *slots = file + INDEX_HEADER_SIZE;
    uint8_t *entry = slots + (size_t)slot_count * SLOT_SIZE + (size_t)number * ENTRY_SIZE;
    Py_ssize_t opened = 0;
    for (Py_ssize_t n = 0; n < count; n++, number++, entry += ENTRY_SIZE) {
        if (n + SLOTS_AHEAD < count)
            __builtin_prefetch(slots + (size_t)(hashes[n + SLOTS_AHEAD] % slot_count) * SLOT_SIZE, 1);
        uint8_t *slot = slots + (size_t)(hashes[n] % slot_count) * SLOT_SIZE;
        int32_t previous = (int32_t)get32(slot);
        if (previous <= 0 || (uint32_t)previous >= number) {
            previous = 0;
            opened++;
        }
        put32(entry, hashes[n]);
        put64(entry + 4, (uint64_t)offsets[n]);
        put32(entry + 12, seconds_since(begin, timestamps[n]));
        put32(entry + 16, (uint32_t)previous);
        put32(slot, number);
        if (number == 1) begin = timestamps[n];
    }
    return opened;
}

static PyObject *put_entries(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t argument_count) {
    if (argument_count != 7) {
        PyErr_SetString(PyExc_TypeError, "put_entries(buffer, slots, first, begin, hashes, offsets, timestamps)");
        return NULL;
    }
    long long slot_count = PyLong_AsLongLong(args[1]), first = PyLong_AsLongLong(args[2]);
    long long begin = PyLong_AsLongLong(args[3]);
    if (PyErr_Occurred()) return NULL;
    Py_buffer file, hashes, offsets, timestamps;
    if (PyObject_GetBuffer(args[0], &file, PyBUF_WRITABLE) < 0) return NULL;
    PyObject *opened = NULL;
    if (column_of(args[4], 4, &hashes) < 0) goto no_hashes;
    if (column_of(args[5], 8, &offsets) < 0) goto no_offsets;
    if (column_of(args[6], 8, &timestamps) < 0) goto no_timestamps;
    Py_ssize_t count = hashes.len / 4;
    if (offsets.len / 8 != count || timestamps.len / 8 != count || slot_count < 1 || slot_count > 0x7FFFFFFF || first < 1 ||
        first > 0x7FFFFFFF - count ||
        INDEX_HEADER_SIZE + slot_count * SLOT_SIZE + (first + count) * ENTRY_SIZE > file.len)
        PyErr_SetString(PyExc_ValueError, "columns must have one length and fit into the file");
    else
        opened = PyLong_FromSsize_t(put_columns(file.buf, (uint32_t)slot_count, (uint32_t)first, begin, count, hashes.buf,
                                              offsets.buf, timestamps.buf));
    PyBuffer_Release(&timestamps);
no_timestamps:
    PyBuffer_Release(&offsets);
no_offsets:
    PyBuffer_Release(&hashes);
no_hashes:
    PyBuffer_Release(&file);
    return opened;
}

/* The hash of a text that is not plain ASCII, over its UTF-16 units. */
static int hash_wide(PyObject *key, uint32_t *hash) {
    PyObject *text = PyUnicode_DecodeUTF8(PyBytes_AS_STRING(key), PyBytes_GET_SIZE(key), "orbitmq-java");
    if (text == NULL) return -1;
    uint32_t value = 0;
    for (Py_ssize_t n = 0; n < PyUnicode_GET_LENGTH(text); n++) {
        Py_UCS4 unit = PyUnicode_READ_CHAR(text, n);
        if (unit > 0xFFFF) {
            value = value * 31 + (0xD800 + ((unit - 0x10000) >> 10));
            unit = 0xDC00 + ((unit - 0x10000) & 0x3FF);
        }
        value = value * 31 + unit;
    }
    Py_DECREF(text);
    *hash = value;
    return 0;
}

static PyObject *hash_keys(PyObject *Py_UNUSED(module), PyObject *keys) {
    if (!PyList_Check(keys)) {
        PyErr_SetString(PyExc_TypeError, "hash_keys(list of bytes)");
        return NULL;
    }
    Py_ssize_t count = PyList_GET_SIZE(keys);
    PyObject *hashes = PyBytes_FromStringAndSize(NULL, count * 4);
    for (Py_ssize_t n = 0; hashes != NULL && n < count; n++) {
        PyObject *key = PyList_GET_ITEM(keys, n);
        if (!PyBytes_Check(key)) {
            PyErr_SetString(PyExc_TypeError, "a key is bytes");
            Py_CLEAR(hashes);
            break;
        }
        const uint8_t *at = (uint8_t *)PyBytes_AS_STRING(key);
        uint32_t hash = 0, seen = 0;
        for (Py_ssize_t i = 0; i < PyBytes_GET_SIZE(key); i++) {
            hash = hash * 31 + at[i];
            seen |= at[i];
        }
        if (seen >= 0x80 && hash_wide(key, &hash) < 0) {
            Py_CLEAR(hashes);
            break;
        }
        hash = index_hash(hash);
        memcpy(PyBytes_AS_STRING(hashes) + n * 4, &hash, 4);
    }
    return hashes;
}
