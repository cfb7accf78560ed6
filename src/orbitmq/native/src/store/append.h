/* Append: writes a record to the log, its unit to the queue and its keys to the index. */
#ifndef ORBITMQ_APPEND_H
#define ORBITMQ_APPEND_H
#include "base/byte_order.h"
#include "protocol/properties.h"
#include "store/route_table.h"

typedef struct {
    uint8_t *log;
    int64_t position, limit, base, now;
    int64_t last_offset;
} LogCursor;

#define PROPERTY_PARTS 4

typedef struct {
    uint32_t flag, sys_flag;
    int64_t born, code;
    Slice born_host, body;
    uint32_t reconsumed;
    Slice properties[PROPERTY_PARTS]; /* one behind the other; empty ones have no bytes */
    ParsedProperties parsed;
} Record;

static int put_key(Batcher *self, uint32_t hash, Slice key, int64_t offset);
static int read_stored_properties(Slice properties, ParsedProperties *parsed);
static Slice last_item(Slice properties);
static int miss_route(Batcher *self, const char *topic, Py_ssize_t size, int64_t queue_id, int is_deferral, int needs_queue);
static int has_room_for(Batcher *self, QueueRoute *route, int64_t size, Py_ssize_t properties_size, const LogCursor *cursor);
static int append_record(Batcher *self, QueueRoute *route, const Record *record, LogCursor *cursor);
static int64_t tags_code(const ParsedProperties *parsed);
static int begin_batch(Batcher *self, PyObject *const *where, Py_buffer *log, LogCursor *cursor);
static PyObject *enter_routes(Batcher *self, int reports_shares);

#endif
