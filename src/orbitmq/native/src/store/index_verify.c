/* Index verification and cutting. Twin of find_damage and cut_after in store/index/arrays.py. */
#include "store/index_verify.h"
#include "store/index_put.h"

typedef struct {
    Py_buffer view;
    uint8_t *slots, *entries; /* the first entry has number 1 */
    int64_t slot_count, next;
    uint64_t inverse; /* of the number of slots: a division per entry would take as long as all the rest */
} Index;

/* Open an index file with entries up to a number; the caller releases it. 0 for an error. */
static int open_index(PyObject *file, long long slot_count, long long next, int flags, Index *index) {
    if (PyObject_GetBuffer(file, &index->view, flags) < 0) return 0;
    /* Checked before any arithmetic: in a damaged file they may be any numbers. */
    if (slot_count > 0 && slot_count <= INT32_MAX && next > 0 && next <= INT32_MAX &&
        index->view.len >= INDEX_HEADER_SIZE + slot_count * SLOT_SIZE + next * ENTRY_SIZE) {
        index->slots = (uint8_t *)index->view.buf + INDEX_HEADER_SIZE;
        index->entries = index->slots + slot_count * SLOT_SIZE;
        index->slot_count = slot_count;
        index->next = next;
        index->inverse = UINT64_MAX / slot_count + 1;
        return 1;
    }
    PyBuffer_Release(&index->view);
    PyErr_SetString(PyExc_ValueError, "this file has fewer entries");
    return 0;
}

static inline int64_t slot_of(const Index *index, int32_t hash) {
    if (hash < 0 || index->slot_count == 1) {
        /* Negative only in a damaged file; it then counts as in Python. */
        int64_t slot = hash % index->slot_count;
        return slot < 0 ? slot + index->slot_count : slot;
    }
    return (unsigned __int128)(index->inverse * (uint32_t)hash) * index->slot_count >> 64;
}

/* True if the entries, put again, make the slots that the file has. */
static int is_sound_index(const Index *index, uint32_t *table, int64_t begin_offset, int64_t end_offset, int64_t used) {
    int64_t before = begin_offset, opened = 0;
    for (int64_t number = 1; number < index->next; number++) {
        const uint8_t *entry = index->entries + number * ENTRY_SIZE;
        if (number + SLOTS_AHEAD < index->next)
            __builtin_prefetch(table + slot_of(index, (int32_t)get32(entry + SLOTS_AHEAD * ENTRY_SIZE)), 1);
        int32_t hash = (int32_t)get32(entry);
        int64_t offset = (int64_t)get64(entry + 4);
        if (hash < 0 || (int32_t)get32(entry + 12) < 0 || offset < before) return 0;
        uint32_t *newest = table + slot_of(index, hash);
        if (get32(entry + 16) != *newest) return 0;
        opened += *newest == 0;
        *newest = number;
        before = offset;
    }
    if (opened != used || (index->next > 1 && before != end_offset)) return 0;
    for (int64_t slot = 0; slot < index->slot_count; slot++)
        if (get32(index->slots + slot * SLOT_SIZE) != table[slot]) return 0;
    return 1;
}

static PyObject *is_sound(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *file;
    long long slot_count, next, begin_offset, end_offset, used;
    Index index;
    if (!PyArg_ParseTuple(args, "OLLLLL", &file, &slot_count, &next, &begin_offset, &end_offset, &used)) return NULL;
    if (!open_index(file, slot_count, next, PyBUF_SIMPLE, &index)) return NULL;
    uint32_t *table = PyMem_Calloc(slot_count, sizeof *table);
    int sound = table != NULL && is_sound_index(&index, table, begin_offset, end_offset, used);
    PyBuffer_Release(&index.view);
    if (table == NULL) return PyErr_NoMemory();
    PyMem_Free(table);
    return PyBool_FromLong(sound);
}

/* Rebuild the slots from the first entries, up to one behind an offset or one that goes back. */
static PyObject *cut_entries(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *file;
    long long slot_count, next, begin_offset, until, used = 0, number = 1;
    Index index;
    if (!PyArg_ParseTuple(args, "OLLLL", &file, &slot_count, &next, &begin_offset, &until)) return NULL;
    if (!open_index(file, slot_count, next, PyBUF_WRITABLE, &index)) return NULL;
    int64_t last = begin_offset;
    memset(index.slots, 0, slot_count * SLOT_SIZE);
    for (; number < next; number++) {
        const uint8_t *entry = index.entries + number * ENTRY_SIZE;
        if (number + SLOTS_AHEAD < next)
            __builtin_prefetch(index.slots + slot_of(&index, (int32_t)get32(entry + SLOTS_AHEAD * ENTRY_SIZE)) * SLOT_SIZE, 1);
        int64_t offset = (int64_t)get64(entry + 4);
        if (offset > until || offset < last) break;
        uint8_t *slot = index.slots + slot_of(&index, (int32_t)get32(entry)) * SLOT_SIZE;
        used += get32(slot) == 0;
        put32(slot, number);
        last = offset;
    }
    PyBuffer_Release(&index.view);
    return Py_BuildValue("(LLL)", number, (long long)last, used);
}
