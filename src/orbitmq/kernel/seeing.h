/* Whether a record of the log is whole: the compiled twin of store/scan.py, for those that are plain. */
#ifndef ORBITMQ_SEEING_H
#define ORBITMQ_SEEING_H
#include "bytes.h"

#define MAGIC_V1 0xDAA320A7u
#define MAGIC_V2 0xDAA320ABu
#define SMALLEST_RECORD 91
#define NOT_QUEUED 0x4 /* the sysFlag bit of halves and of what was rolled back */
#define HOST_V6_MORE 12 /* bytes of a host that is larger than others */

typedef struct {
    int64_t size, queue_id, queue_offset, stored;
    Text topic, properties;
} Seen;

/* Whether a whole record is here, and one of the kind that is in a queue. */
static int see(const uint8_t *at, int64_t room, int64_t offset, int check_crc, Seen *seen) {
    if (room < SMALLEST_RECORD) return 0;
    int64_t size = (int32_t)get32(at);
    uint32_t magic = get32(at + 4), flags = get32(at + 36);
    if ((magic != MAGIC_V1 && magic != MAGIC_V2) || size < SMALLEST_RECORD || size > room) return 0;
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
    seen->topic = (Text){at + topic_at, topic_size};
    seen->properties = (Text){at + properties_at, properties_size};
    /* Zeros may be what a crash left of it. */
    if (memchr(seen->topic.at, 0, topic_size) != NULL || memchr(seen->properties.at, 0, properties_size) != NULL) return 0;
    if (check_crc && (crc_of(at + body_at, body_size) & 0x7FFFFFFFu) != get32(at + 8)) return 0;
    seen->size = size;
    seen->queue_id = (int32_t)get32(at + 12);
    seen->queue_offset = (int64_t)get64(at + 20);
    seen->stored = (int64_t)get64(at + stored_at);
    return 1;
}

#endif
