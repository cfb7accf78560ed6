/* What a send says of its message. */
#ifndef ORBITMQ_SEND_HEADER_H
#define ORBITMQ_SEND_HEADER_H
#include "request_header.h"

#define SEND_V2 310
#define SEND_BATCH 320
#define PROPERTIES_FIELD 8

typedef struct {
    int64_t opaque, flag; /* of the request */
    Text topic, properties;
    int is_batch, has_escapes; /* the latter in the properties */
    int64_t queue_id, sys_flag, born, message_flag, reconsumed;
} Send;

/* The fields of a send have one letter each. */
static int which_of_send(Text name) {
    return name.size == 1 && name.at[0] >= 'a' && name.at[0] <= 'n' ? name.at[0] - 'a' : -1;
}

/* The typed fields; 0 if there is anything unusual about them. */
static int read_send(const Request *request, Send *send) {
    const Text *fields = request->fields;
    uint32_t present = request->present;
    int64_t unused;
    send->is_batch = request->code == SEND_BATCH;
    if ((request->code != SEND_V2 && !send->is_batch) || request->escaped & ~(1u << PROPERTIES_FIELD)) return 0;
    if ((present & 0xFF) != 0xFF) return 0; /* a to h */
    send->opaque = request->opaque;
    send->flag = request->flag;
    send->has_escapes = request->escaped != 0;
    send->topic = fields[1];
    send->properties = fields[PROPERTIES_FIELD];
    send->reconsumed = 0;
    return (present & 1 << PROPERTIES_FIELD) && int32_of(fields[3], &unused) && int32_of(fields[4], &send->queue_id) &&
           send->queue_id >= 0 && int32_of(fields[5], &send->sys_flag) && number_of(fields[6], 0, &send->born) &&
           int32_of(fields[7], &send->message_flag) &&
           (!(present & 1 << 9) || int32_of(fields[9], &send->reconsumed)) &&
           (!(present & 1 << 10) || is_text(fields[10], "true") || is_text(fields[10], "false")) &&
           (!(present & 1 << 11) || int32_of(fields[11], &unused)) &&
           (present & 1 << 12 ? is_text(fields[12], send->is_batch ? "true" : "false") : !send->is_batch);
}

#endif
