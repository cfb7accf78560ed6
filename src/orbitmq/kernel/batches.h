/* Sends of many messages in one request, each of which is stored by itself: the compiled twin of ``_send_batch`` in
 * broker/send.py and of ``append_batch`` in store/appending.py. All are looked at before the first is stored.
 */
#ifndef ORBITMQ_BATCHES_H
#define ORBITMQ_BATCHES_H
#include "send_header.h"
#include "storing.h"

#define ITEM_HEAD 20

typedef struct {
    uint32_t flag;
    Text body, properties;
    Known known;
    int64_t offset; /* in the log, once it is stored */
} Item;

/* The unique key in the properties of the request, if there is one that can be told as it is; 0 if it is unusual. */
static int read_batch_key(Text properties, Text *key) {
    const uint8_t *item = properties.at, *end = item + properties.size;
    *key = (Text){NULL, 0};
    while (item < end) {
        const uint8_t *stop = memchr(item, 2, end - item), *middle;
        if (stop == NULL) return 0;
        middle = memchr(item, 1, stop - item);
        if (middle != NULL && is_text((Text){item, middle - item}, "UNIQ_KEY")) {
            if (key->at != NULL || !is_alphanumeric((Text){middle + 1, stop - middle - 1})) return 0;
            *key = (Text){middle + 1, stop - middle - 1};
        }
        item = stop + 1;
    }
    return 1;
}

/* The messages of a batch into the pile of items; returns how many, 0 if one is unusual, -1 for an error. */
static Py_ssize_t read_items(Runs *self, Text batch, int64_t room, Py_ssize_t fixed) {
    const uint8_t *at = batch.at, *end = at + batch.size;
    Py_ssize_t count = 0;
    self->items.size = 0;
    while (at < end) {
        Item item;
        if (end - at < ITEM_HEAD + 2) return 0;
        item.flag = get32(at + 12);
        int64_t body_size = (int32_t)get32(at + 16);
        if (body_size <= 0 || end - at - ITEM_HEAD - 2 < body_size) return 0;
        item.body = (Text){at + ITEM_HEAD, body_size};
        at += ITEM_HEAD + body_size;
        item.properties = (Text){at + 2, (int16_t)get16(at)};
        if (item.properties.size < 0 || end - item.properties.at < item.properties.size) return 0;
        at = item.properties.at + item.properties.size;
        if (item.properties.size > self->max_properties || !read_stored_properties(item.properties, &item.known)) return 0;
        room -= fixed + item.body.size + item.properties.size;
        if (room < 0) return 0;
        uint8_t *place = pile_more(&self->items, sizeof item);
        if (place == NULL) return -1;
        memcpy(place, &item, sizeof item);
        count++;
    }
    return count;
}

static uint8_t *put_ids(const Runs *self, uint8_t *at, Py_ssize_t count) {
    const Item *items = (const Item *)self->items.data;
    Py_ssize_t host_size = PyBytes_GET_SIZE(self->host_text);
    for (Py_ssize_t n = 0; n < count; n++) {
        if (n) *at++ = ',';
        at = put_text(at, PyBytes_AS_STRING(self->host_text), host_size);
        at = put_hex(at, items[n].offset);
    }
    return at;
}

static uint8_t *put_field(uint8_t *at, const char *name) {
    put16(at, strlen(name));
    return put_word(at + 2, name);
}

static int put_batch_answer(Runs *self, int is_binary, const Send *send, Text key, const Lane *lane, Py_ssize_t count) {
    Py_ssize_t before = self->answers.size, ids = count * (PyBytes_GET_SIZE(self->host_text) + 17);
    Py_ssize_t parts = parts_size(self->batch_json) + PyBytes_GET_SIZE(self->batch_binary);
    uint8_t *start = pile_more(&self->answers, PREFIX_SIZE + parts + key.size + ids + 300), *at = start + PREFIX_SIZE;
    if (start == NULL) return -1;
    int64_t queue_offset = next_in(lane) - count;
    if (is_binary) {
        uint8_t *fields = put_binary_head(self, at, send->opaque);
        at = put_text(fields, PyBytes_AS_STRING(self->batch_binary), PyBytes_GET_SIZE(self->batch_binary));
        if (key.at != NULL) {
            at = put_field(at, "transactionId");
            put32(at, key.size);
            at = put_text(at + 4, key.at, key.size);
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
            at = put_text(put_word(at, ",\"transactionId\":\""), key.at, key.size);
            *at++ = '"';
        }
        at = put_ids(self, put_word(at, ",\"msgId\":\""), count);
        at = put_decimal(put_word(at, "\",\"queueId\":\""), send->queue_id);
        at = put_decimal(put_word(at, "\",\"queueOffset\":\""), queue_offset);
        at = put_decimal(put_part(put_word(at, "\"}"), self->batch_json, 1), send->opaque);
        at = put_part(at, self->batch_json, 2);
    }
    self->answers.size = before + end_frame(start, at, is_binary);
    return 0;
}

/* 1 if a batch was taken, 0 if it is for the general path, -1 for an error. */
static int take_batch(Runs *self, const Send *send, Text properties, Text batch, Text born_host, int is_binary, Place *place) {
    Text key;
    if (!read_batch_key(properties, &key) || (self->is_deferred && contains(properties, "WAIT\1false"))) return 0;
    Lane *lane = find_lane(self, send->topic.at, send->topic.size, send->queue_id, 0);
    if (lane == NULL || lane->queue == NULL)
        return want_lane(self, (const char *)send->topic.at, send->topic.size, send->queue_id, 0, 1);
    Py_ssize_t fixed = 72 + born_host.size + PyBytes_GET_SIZE(self->store_host) + PyBytes_GET_SIZE(lane->field) + 2;
    Py_ssize_t count = read_items(self, batch, place->limit - place->position, fixed);
    if (count <= 0) return (int)count;
    Record record = {0};
    record.sys_flag = send->sys_flag & self->kept_flags;
    record.born = send->born;
    record.born_host = born_host;
    record.reconsumed = send->reconsumed;
    Item *items = (Item *)self->items.data;
    for (Py_ssize_t n = 0; n < count; n++) {
        record.flag = items[n].flag;
        record.body = items[n].body;
        record.properties[0] = items[n].properties;
        record.properties[1] = record.properties[2] = (Text){items[n].properties.at, 0};
        record.known = items[n].known;
        record.code = tags_code(&record.known);
        int stored = store(self, lane, &record, place);
        /* Only the first can be refused, by its queue. */
        if (stored <= 0) return stored;
        items[n].offset = place->last_offset;
    }
    lane->requests -= count - 1;
    return send->flag & ONEWAY || put_batch_answer(self, is_binary, send, key, lane, count) == 0 ? 1 : -1;
}

#endif
