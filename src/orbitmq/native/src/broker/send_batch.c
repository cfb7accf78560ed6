/* SEND_BATCH: requests with many messages, each stored as a record of its own. Twin of ``_send_batch`` in
 * broker/send/processor.py and ``append_batch`` in store/append/appender.py. All messages are parsed before the first
 * is appended. */
#include "broker/send_batch.h"
#include "broker/deferral.h"
#include "protocol/properties.h"
#include "protocol/remoting_header.h"
#include "protocol/send_header.h"
#include "store/append.h"
#include "store/route_table.h"

#define ITEM_HEAD 20

typedef struct {
    uint32_t flag;
    Slice body, properties;
    ParsedProperties parsed;
    int64_t offset; /* in the log, once appended */
} BatchItem;

/* The unique key in the properties of the request, if there is one that needs no escapes; 0 if the properties are
 * unusual. */
static int read_batch_key(Slice properties, Slice *key) {
    const uint8_t *item = properties.at, *end = item + properties.size;
    *key = (Slice){NULL, 0};
    while (item < end) {
        const uint8_t *stop = memchr(item, 2, end - item), *middle;
        if (stop == NULL) return 0;
        middle = memchr(item, 1, stop - item);
        if (middle != NULL && slice_equals((Slice){item, middle - item}, "UNIQ_KEY")) {
            if (key->at != NULL || !is_alphanumeric((Slice){middle + 1, stop - middle - 1})) return 0;
            *key = (Slice){middle + 1, stop - middle - 1};
        }
        item = stop + 1;
    }
    return 1;
}

/* Parse the messages of a batch into the items buffer; their number, 0 if one is unusual, -1 for an error. */
static Py_ssize_t read_items(Batcher *self, Slice batch, int64_t room, Py_ssize_t fixed) {
    const uint8_t *at = batch.at, *end = at + batch.size;
    Py_ssize_t count = 0;
    self->items.size = 0;
    while (at < end) {
        BatchItem item;
        if (end - at < ITEM_HEAD + 2) return 0;
        item.flag = get32(at + 12);
        int64_t body_size = (int32_t)get32(at + 16);
        if (body_size <= 0 || end - at - ITEM_HEAD - 2 < body_size) return 0;
        item.body = (Slice){at + ITEM_HEAD, body_size};
        at += ITEM_HEAD + body_size;
        item.properties = (Slice){at + 2, (int16_t)get16(at)};
        if (item.properties.size < 0 || end - item.properties.at < item.properties.size) return 0;
        at = item.properties.at + item.properties.size;
        if (item.properties.size > self->max_properties || !read_stored_properties(item.properties, &item.parsed)) return 0;
        room -= fixed + item.body.size + item.properties.size;
        if (room < 0) return 0;
        uint8_t *at_item = buffer_extend(&self->items, sizeof item);
        if (at_item == NULL) return -1;
        memcpy(at_item, &item, sizeof item);
        count++;
    }
    return count;
}

static uint8_t *put_ids(const Batcher *self, uint8_t *at, Py_ssize_t count) {
    const BatchItem *items = (const BatchItem *)self->items.data;
    Py_ssize_t host_size = PyBytes_GET_SIZE(self->host_hex);
    for (Py_ssize_t n = 0; n < count; n++) {
        if (n) *at++ = ',';
        at = put_bytes(at, PyBytes_AS_STRING(self->host_hex), host_size);
        at = put_hex(at, items[n].offset);
    }
    return at;
}

static uint8_t *put_field(uint8_t *at, const char *name) {
    put16(at, strlen(name));
    return put_literal(at + 2, name);
}

static int put_batch_answer(Batcher *self, int is_binary, const Send *send, Slice key, const QueueRoute *route, Py_ssize_t count) {
    Py_ssize_t before = self->answers.size, ids = count * (PyBytes_GET_SIZE(self->host_hex) + 17);
    Py_ssize_t parts = parts_size(self->batch_json) + PyBytes_GET_SIZE(self->batch_binary);
    uint8_t *start = buffer_extend(&self->answers, PREFIX_SIZE + parts + key.size + ids + 300), *at = start + PREFIX_SIZE;
    if (start == NULL) return -1;
    int64_t queue_offset = next_in(route) - count;
    if (is_binary) {
        uint8_t *fields = put_binary_head(self, at, send->opaque);
        at = put_bytes(fields, PyBytes_AS_STRING(self->batch_binary), PyBytes_GET_SIZE(self->batch_binary));
        if (key.at != NULL) {
            at = put_field(at, "transactionId");
            put32(at, key.size);
            at = put_bytes(at + 4, key.at, key.size);
        }
        at = put_field(at, "msgId");
        uint8_t *end = put_ids(self, at + 4, count);
        put32(at, end - at - 4);
        at = put_sized(put_field(end, "queueId"), send->queue_id);
        at = put_sized(put_field(at, "queueOffset"), queue_offset);
        put32(fields - 4, at - fields);
    } else {
        at = put_part(at, self->batch_json, 0);
        if (key.at != NULL) {
            at = put_bytes(put_literal(at, ",\"transactionId\":\""), key.at, key.size);
            *at++ = '"';
        }
        at = put_ids(self, put_literal(at, ",\"msgId\":\""), count);
        at = put_decimal(put_literal(at, "\",\"queueId\":\""), send->queue_id);
        at = put_decimal(put_literal(at, "\",\"queueOffset\":\""), queue_offset);
        at = put_decimal(put_part(put_literal(at, "\"}"), self->batch_json, 1), send->opaque);
        at = put_part(at, self->batch_json, 2);
    }
    self->answers.size = before + end_frame(start, at, is_binary);
    return 0;
}

/* 1 if the batch was appended, 0 if it is for the Python path, -1 for an error. */
static int append_batch(Batcher *self, const Send *send, Slice properties, Slice batch, Slice born_host, int is_binary, LogCursor *cursor) {
    Slice key;
    int is_late = self->dispatches_later || self->answers_later;
    if (!read_batch_key(properties, &key) || (is_late && contains(properties, "WAIT\1false"))) return 0;
    QueueRoute *route = find_route(self, send->topic.at, send->topic.size, send->queue_id, 0);
    if (route == NULL || route->queue == NULL)
        return miss_route(self, (const char *)send->topic.at, send->topic.size, send->queue_id, 0, 1);
    Py_ssize_t fixed = 72 + born_host.size + PyBytes_GET_SIZE(self->store_host) + PyBytes_GET_SIZE(route->field) + 2;
    Py_ssize_t count = read_items(self, batch, cursor->limit - cursor->position, fixed);
    if (count <= 0) return (int)count;
    Record record = {0};
    record.sys_flag = send->sys_flag & self->kept_flags;
    record.born = send->born;
    record.born_host = born_host;
    record.reconsumed = send->reconsumed;
    BatchItem *items = (BatchItem *)self->items.data;
    for (Py_ssize_t n = 0; n < count; n++) {
        record.flag = items[n].flag;
        record.body = items[n].body;
        record.properties[0] = items[n].properties;
        record.properties[1] = record.properties[2] = record.properties[3] = (Slice){NULL, 0};
        record.parsed = items[n].parsed;
        record.code = tags_code(&record.parsed);
        int stored = append_record(self, route, &record, cursor);
        /* Only the first can be declined, because of its queue. */
        if (stored <= 0) return stored;
        items[n].offset = cursor->last_offset;
    }
    route->requests -= count - 1;
    return send->flag & ONEWAY || put_batch_answer(self, is_binary, send, key, route, count) == 0 ? 1 : -1;
}
