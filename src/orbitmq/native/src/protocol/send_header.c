/* Fields of a send request. */
#include "protocol/send_header.h"
#include "protocol/remoting_header.h"

#define SEND_V2 310
#define SEND_BATCH 320
#define PROPERTIES_FIELD 8

/* The fields of a send have one letter each. */
static int which_of_send(Slice name) {
    return name.size == 1 && name.at[0] >= 'a' && name.at[0] <= 'n' ? name.at[0] - 'a' : -1;
}

/* Convert the typed fields; 0 if one is unusual. */
static int read_send(const Request *request, Send *send) {
    const Slice *fields = request->fields;
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
           (!(present & 1 << 10) || slice_equals(fields[10], "true") || slice_equals(fields[10], "false")) &&
           (!(present & 1 << 11) || int32_of(fields[11], &unused)) &&
           (present & 1 << 12 ? slice_equals(fields[12], send->is_batch ? "true" : "false") : !send->is_batch);
}
