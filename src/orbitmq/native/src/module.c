/* The extension module, built as one translation unit so that calls between files are inlined. Each file includes the
 * headers of what it uses; the order of the files here does not matter. */
#include "base/results.h"
#include "base/crc32.c"
#include "base/huge_pages.c"
#include "base/madvise.c"
#include "base/bus_error.c"
#include "base/sha1.c"
#include "protocol/remoting_header.c"
#include "protocol/signed_request.c"
#include "protocol/send_header.c"
#include "protocol/properties.c"
#include "store/queue_state.c"
#include "store/route_table.c"
#include "store/record_check.c"
#include "store/append.c"
#include "store/gather_records.c"
#include "store/index_put.c"
#include "store/index_verify.c"
#include "store/reput.c"
#include "broker/deferral.c"
#include "broker/send_batch.c"
#include "broker/send.c"
#include "broker/pop_ack.c"
#include "broker/pop_ack_batch.c"
#include "broker/pull.c"
#include "broker/pop.c"
#include "broker/deferred_delivery.c"
#include "broker/offsets/offset_server.c"

static PyMethodDef functions[] = {
    {"advise", (PyCFunction)(void (*)(void))advise, METH_FASTCALL, "Give advice about a part of a map, in steps."},
    {"follow_timer_chain", (PyCFunction)(void (*)(void))follow_timer_chain, METH_FASTCALL, "Follow the chain of a slot of the timer."},
    {"gather_records", (PyCFunction)(void (*)(void))gather_records, METH_FASTCALL, "The compiled twin of orbitmq.native.python.gather_records.gather_records."},
    {"guard_maps", guard_maps, METH_NOARGS, "On a bus error, name the mapped file and exit."},
    {"hash_keys", hash_keys, METH_O, "Index hashes of keys."},
    {"is_sound", is_sound, METH_VARARGS, "True if the entries of an index file make its slots."},
    {"cut_entries", cut_entries, METH_VARARGS, "Rebuild the slots of an index file from its first entries."},
    {"request_code", (PyCFunction)(void (*)(void))request_code, METH_FASTCALL, "The code in the JSON header at a position of frames."},
    {"put_entries", (PyCFunction)(void (*)(void))put_entries, METH_FASTCALL, "Put entries into an index file."},
    {"signing_key", (PyCFunction)(void (*)(void))signing_key, METH_FASTCALL, "What verify_requests takes as the key of a user."},
    {"verify_requests", (PyCFunction)(void (*)(void))verify_requests, METH_FASTCALL, "The size of the frames that are signed by users who may make them."},
    {"populate_huge_pages", (PyCFunction)(void (*)(void))populate_huge_pages, METH_FASTCALL, "Make huge pages of a map resident."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, .m_name = "_native", .m_doc = "Native batch types and functions; see orbitmq.native.", .m_size = -1,
    .m_methods = functions};

PyMODINIT_FUNC PyInit__native(void) {
    PyTypeObject *types[] = {&QueueStateType, &CounterType, &SendBatcherType, &AckBatcherType, &DeferredDeliveryType, &PullServerType, &PopServerType, &LogReplayerType, &OffsetServerType};
    make_crc_table();
    if (import_results() < 0) return NULL;
    PyObject *made = PyModule_Create(&module);
    for (size_t n = 0; made != NULL && n < sizeof types / sizeof *types; n++)
        if (PyModule_AddType(made, types[n]) < 0) Py_CLEAR(made);
    return made;
}
