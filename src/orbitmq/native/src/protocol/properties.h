/* Message properties: recognises plain ones, and finds those that the index and the response need. */
#ifndef ORBITMQ_PROPERTIES_H
#define ORBITMQ_PROPERTIES_H
#include "base/byte_order.h"

typedef struct {
    Slice unique_key, keys, tags; /* at NULL: absent */
    int has_non_ascii; /* some of the text, which is valid UTF-8 */
    int no_wait_store; /* WAIT=false: the sender does not wait for the flush */
} ParsedProperties;

enum { NEEDS_PYTHON, PLAIN_PROPERTIES, MAY_BE_DEFERRED };

static Py_ssize_t unescape(Slice text, uint8_t *out, int *has_non_ascii);
static int is_alphanumeric(Slice text);
static int scan_properties(const uint8_t *start, Py_ssize_t size, ParsedProperties *parsed);

#endif
