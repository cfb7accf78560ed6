/* Record view: parses a record of the log if it is whole and plain. */
#ifndef ORBITMQ_RECORD_CHECK_H
#define ORBITMQ_RECORD_CHECK_H
#include "base/byte_order.h"

#define MAGIC_V1 0xDAA320A7u
#define MIN_RECORD_SIZE 91
#define NOT_QUEUED 0x4 /* sysFlag bit of half messages and of rolled back ones */

typedef struct {
    int64_t size, queue_id, queue_offset, stored;
    Slice topic, properties;
} RecordView;

static int view_record(const uint8_t *at, int64_t room, int64_t offset, int check_crc, RecordView *view);

#endif
