/* Record view: parses a record of the log if it is whole and plain. Twin of store/commitlog/scanner.py. */
#include "store/record_check.h"
#include "base/crc32.h"

#define MAGIC_V2 0xDAA320ABu
#define HOST_V6_MORE 12 /* bytes by which an IPv6 host is larger */

/* Parse a whole record of the kind that is in a queue; 0 if it is anything else. */
static int view_record(const uint8_t *at, int64_t room, int64_t offset, int check_crc, RecordView *view) {
    if (room < MIN_RECORD_SIZE) return 0;
    int64_t size = (int32_t)get32(at);
    uint32_t magic = get32(at + 4), flags = get32(at + 36);
    if ((magic != MAGIC_V1 && magic != MAGIC_V2) || size < MIN_RECORD_SIZE || size > room) return 0;
    int64_t stored_at = 56 + (flags & BORN_HOST_V6 ? HOST_V6_MORE : 0);
    int64_t body_at = stored_at + 32 + (flags & STORE_HOST_V6 ? HOST_V6_MORE : 0);
    if (flags & NOT_QUEUED || body_at > size || (int64_t)get64(at + 28) != offset) return 0;
    int64_t body_size = (int32_t)get32(at + body_at - 4), topic_at = body_at + body_size + (magic == MAGIC_V1 ? 1 : 2);
    if (body_size < 0 || topic_at > size) return 0;
    int64_t topic_size = magic == MAGIC_V1 ? at[topic_at - 1] : get16(at + topic_at - 2);
    int64_t properties_at = topic_at + topic_size + 2;
    if (topic_size > (magic == MAGIC_V1 ? 0x7F : 0x7FFF) || properties_at > size) return 0;
    int64_t properties_size = get16(at + properties_at - 2);
    if (properties_at + properties_size != size || properties_size > 0x7FFF) return 0;
    view->topic = (Slice){at + topic_at, topic_size};
    view->properties = (Slice){at + properties_at, properties_size};
    /* Zeros may be what a crash left of it. */
    if (memchr(view->topic.at, 0, topic_size) != NULL || memchr(view->properties.at, 0, properties_size) != NULL) return 0;
    if (check_crc && (crc_of(at + body_at, body_size) & 0x7FFFFFFFu) != get32(at + 8)) return 0;
    view->size = size;
    view->queue_id = (int32_t)get32(at + 12);
    view->queue_offset = (int64_t)get64(at + 20);
    view->stored = (int64_t)get64(at + stored_at);
    return 1;
}
