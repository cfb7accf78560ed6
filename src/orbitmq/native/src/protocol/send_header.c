/* Fields of a send request. */
#include "protocol/send_header.h"
#include "protocol/remoting_header.h"

#define SEND_MESSAGE 10
#define SEND_V2 310
#define SEND_BATCH 320

enum {
    SEND_GROUP, SEND_TOPIC, SEND_DEFAULT_TOPIC, SEND_DEFAULT_QUEUES, SEND_QUEUE, SEND_SYS_FLAG, SEND_BORN, SEND_FLAG, SEND_NEEDED,
    SEND_PROPERTIES = SEND_NEEDED, SEND_RECONSUMED, SEND_UNIT_MODE, SEND_RECONSUME_LIMIT, SEND_IS_BATCH, SEND_BROKER_NAME
};

/* The long names, which SEND_MESSAGE has; the Go and C++ clients send no other. */
static int which_long_name(Slice name) {
    int number = -1;
    switch (name.size) {
        case 4: number = slice_equals(name, "flag") ? SEND_FLAG : -1; break;
        case 5: number = slice_equals(name, "topic") ? SEND_TOPIC : slice_equals(name, "batch") ? SEND_IS_BATCH
                         : slice_equals(name, "bname") ? SEND_BROKER_NAME : -1;
                break;
        case 7: number = slice_equals(name, "queueId") ? SEND_QUEUE : slice_equals(name, "sysFlag") ? SEND_SYS_FLAG : -1; break;
        case 8: number = slice_equals(name, "unitMode") ? SEND_UNIT_MODE : -1; break;
        case 10: number = slice_equals(name, "properties") ? SEND_PROPERTIES : -1; break;
        case 12: number = slice_equals(name, "defaultTopic") ? SEND_DEFAULT_TOPIC : -1; break;
        case 13: number = slice_equals(name, "producerGroup") ? SEND_GROUP : slice_equals(name, "bornTimestamp") ? SEND_BORN : -1; break;
        case 14: number = slice_equals(name, "reconsumeTimes") ? SEND_RECONSUMED : -1; break;
        case 17: number = slice_equals(name, "maxReconsumeTimes") ? SEND_RECONSUME_LIMIT : -1; break;
        case 21: number = slice_equals(name, "defaultTopicQueueNums") ? SEND_DEFAULT_QUEUES : -1; break;
        default: break;
    }
    return number < 0 ? -1 : number + LONG_NAME;
}

/* The fields of the newer requests have one letter each. */
static int which_of_send(Slice name) {
    if (name.size != 1) return which_long_name(name);
    return name.at[0] >= 'a' && name.at[0] <= 'n' ? name.at[0] - 'a' : -1;
}

/* The C++ client writes booleans as 0 and 1, and both are false, as in Java. */
static int is_boolean(Slice text) {
    return slice_equals(text, "true") || slice_equals(text, "false") || slice_equals(text, "0") || slice_equals(text, "1");
}

/* Convert the typed fields; 0 if one is unusual. */
static int read_send(const Request *request, Send *send) {
    const Slice *fields = request->fields;
    const uint32_t present = request->present, unusual = request->escaped | request->non_ascii;
    const uint32_t needed = (1u << SEND_NEEDED) - 1;
    int64_t unused;
    if (request->code != SEND_MESSAGE && request->code != SEND_V2 && request->code != SEND_BATCH) return 0;
    if (request->long_names != (request->code == SEND_MESSAGE ? present : 0)) return 0;
    if ((present & needed) != needed || unusual & ~(1u << SEND_PROPERTIES)) return 0;
    send->is_batch = present & 1u << SEND_IS_BATCH && slice_equals(fields[SEND_IS_BATCH], "true");
    send->opaque = request->opaque;
    send->flag = request->flag;
    send->has_escapes = request->escaped != 0;
    send->has_non_ascii = request->non_ascii != 0;
    send->topic = fields[SEND_TOPIC];
    send->properties = present & 1u << SEND_PROPERTIES ? fields[SEND_PROPERTIES] : (Slice){(const uint8_t *)"", 0};
    send->reconsumed = 0;
    return int32_of(fields[SEND_DEFAULT_QUEUES], &unused) && int32_of(fields[SEND_QUEUE], &send->queue_id) && send->queue_id >= 0 &&
           int32_of(fields[SEND_SYS_FLAG], &send->sys_flag) && number_of(fields[SEND_BORN], 0, &send->born) &&
           int32_of(fields[SEND_FLAG], &send->message_flag) &&
           (!(present & 1u << SEND_RECONSUMED) || int32_of(fields[SEND_RECONSUMED], &send->reconsumed)) &&
           (!(present & 1u << SEND_UNIT_MODE) || is_boolean(fields[SEND_UNIT_MODE])) &&
           (!(present & 1u << SEND_RECONSUME_LIMIT) || int32_of(fields[SEND_RECONSUME_LIMIT], &unused)) &&
           (!(present & 1u << SEND_IS_BATCH) || is_boolean(fields[SEND_IS_BATCH]));
}
