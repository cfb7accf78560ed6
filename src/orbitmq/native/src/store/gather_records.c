/* Records of a queue for one answer. Twin of native/python/gather_records.py, which has the contract. */
#include "store/gather_records.h"
#include "base/results.h"

#define FILLER_SIZE 0x7FFFFFFF
#define RECORD_HEAD 36 /* bytes of a record up to the end of its own offset */

/* Select units up to max_bytes in total, at least one. 0 if there are none, if one is a filler, or if they are damaged:
 * records of a queue lie in the log in the order of their queue offsets. */
static int find_records(const uint8_t *units, Py_ssize_t count, int64_t most_bytes, Gathered *found) {
    int64_t total = 0, stop = 0;
    for (Py_ssize_t n = 0; n < count; n++) {
        int64_t at = (int64_t)get64(units + n * UNIT_SIZE);
        int32_t size = (int32_t)get32(units + n * UNIT_SIZE + 8);
        if (size <= 0 || size == FILLER_SIZE || at < stop || at > INT64_MAX - size) return 0;
        total += size;
        stop = at + size;
    }
    if (count == 0) return 0;
    while (total > most_bytes && count > 1) total -= get32(units + --count * UNIT_SIZE + 8);
    const uint8_t *unit = units + (count - 1) * UNIT_SIZE;
    int64_t last = (int64_t)get64(unit);
    *found = (Gathered){count, total, (int64_t)get64(units), last, last + get32(unit + 8)};
    return 1;
}

/* True if the units lead to records of their queue: each record names the queue, its queue offset and its offset in the
 * log. The topic is compared only where records are read anyway, because it lies behind the body. A negative number
 * stands for a light queue, which holds records of others; `skipped` for units between these that a filter left out,
 * counted before each of them. */
static int are_of_queue(const uint8_t *units, const Gathered *found, int64_t base, const Py_buffer *log, int64_t queue_id,
                        int64_t number, const uint32_t *skipped) {
    if (number < 0) return 1;
    if (number > INT64_MAX - found->count - (skipped == NULL ? 0 : skipped[found->count - 1])) return 0;
    for (Py_ssize_t n = 0; n < found->count; n++) {
        int64_t expected = number + n + (skipped == NULL ? 0 : skipped[n]);
        const uint8_t *unit = units + n * UNIT_SIZE;
        int64_t at = (int64_t)get64(unit) - base;
        if (at < 0 || at > log->len - RECORD_HEAD) return 0;
        const uint8_t *record = (uint8_t *)log->buf + at;
        if (get32(record) != get32(unit + 8) || (int32_t)get32(record + 12) != queue_id ||
            (int64_t)get64(record + 20) != expected || get64(record + 28) != get64(unit))
            return 0;
    }
    return 1;
}

/* Copy the records; 0 if one is not in this file of the log, whose first byte has the offset base. */
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

static PyObject *gather_records(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t argument_count) {
    if (argument_count != 9 || !PyBytes_Check(args[0])) {
        PyErr_SetString(PyExc_TypeError, "gather_records(units, buffer, base, end, most_bytes, copied, copied_each, queue_id, number)");
        return NULL;
    }
    long long base = PyLong_AsLongLong(args[2]), end = PyLong_AsLongLong(args[3]);
    long long most_bytes = PyLong_AsLongLong(args[4]);
    long long copied = PyLong_AsLongLong(args[5]), copied_each = PyLong_AsLongLong(args[6]);
    long long queue_id = PyLong_AsLongLong(args[7]), number = PyLong_AsLongLong(args[8]);
    if (PyErr_Occurred()) return NULL;
    const uint8_t *units = (uint8_t *)PyBytes_AS_STRING(args[0]);
    Gathered found;
    if (!find_records(units, PyBytes_GET_SIZE(args[0]) / UNIT_SIZE, most_bytes, &found)) Py_RETURN_NONE;
    Py_buffer log;
    if (PyObject_GetBuffer(args[1], &log, PyBUF_SIMPLE) < 0) return NULL;
    PyObject *records = NULL;
    int is_inside = base >= 0 && found.first >= base && found.stop <= end && found.stop - base <= log.len &&
                    are_of_queue(units, &found, base, &log, queue_id, number, NULL);
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
    return make_result(RESULT_GATHERED, from_int(found.count), from_int(found.total), from_int(found.last), from_int(found.stop), records);
}
