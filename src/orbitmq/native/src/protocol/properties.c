/* Message properties: recognises plain ones, and finds those that the index and the response need. */
#include "protocol/properties.h"

static int hex_of(uint8_t byte) {
    if (byte >= '0' && byte <= '9') return byte - '0';
    byte |= 0x20;
    return byte >= 'a' && byte <= 'f' ? byte - 'a' + 10 : -1;
}

/* The four hexadecimal digits of an escape; -1 if they are none. */
static int32_t read_hex4(const uint8_t *at, const uint8_t *end) {
    int32_t number = 0;
    if (end - at < 4) return -1;
    for (int n = 0; n < 4; n++) {
        int digit = hex_of(at[n]);
        if (digit < 0) return -1;
        number = number << 4 | digit;
    }
    return number;
}

static uint8_t *put_utf8(uint8_t *out, uint32_t character) {
    if (character < 0x80) {
        *out++ = character;
        return out;
    }
    if (character < 0x800) {
        *out++ = 0xC0 | character >> 6;
    } else {
        if (character < 0x10000) {
            *out++ = 0xE0 | character >> 12;
        } else {
            *out++ = 0xF0 | character >> 18;
            *out++ = 0x80 | (character >> 12 & 0x3F);
        }
        *out++ = 0x80 | (character >> 6 & 0x3F);
    }
    *out++ = 0x80 | (character & 0x3F);
    return out;
}

/* Resolve JSON escapes into UTF-8, which is never longer; -1 if one of them is wrong or half of a surrogate pair. */
static Py_ssize_t unescape(Slice text, uint8_t *out, int *has_non_ascii) {
    const uint8_t *at = text.at, *end = at + text.size;
    uint8_t *start = out;
    while (at < end) {
        if (*at != '\\') { *out++ = *at++; continue; }
        if (end - at < 2) return -1;
        uint8_t byte = at[1];
        at += 2;
        switch (byte) {
            case '"': case '\\': case '/': *out++ = byte; break;
            case 'b': *out++ = '\b'; break;
            case 'f': *out++ = '\f'; break;
            case 'n': *out++ = '\n'; break;
            case 'r': *out++ = '\r'; break;
            case 't': *out++ = '\t'; break;
            case 'u': {
                int32_t character = read_hex4(at, end), low;
                if (character < 0 || (character >= 0xDC00 && character < 0xE000)) return -1;
                at += 4;
                if (character >= 0xD800 && character < 0xDC00) {
                    if (end - at < 6 || at[0] != '\\' || at[1] != 'u') return -1;
                    low = read_hex4(at + 2, end);
                    if (low < 0xDC00 || low >= 0xE000) return -1;
                    character = 0x10000 + ((character - 0xD800) << 10) + (low - 0xDC00);
                    at += 6;
                }
                if (character >= 0x80) *has_non_ascii = 1;
                out = put_utf8(out, character);
                break;
            }
            default: return -1;
        }
    }
    return out - start;
}

static inline int ends_with(const uint8_t *start, const uint8_t *end, const char *name, Py_ssize_t size) {
    return end - start >= size && memcmp(end - size, name, size) == 0;
}

/* As all clients make unique keys: nothing that JSON would have to escape. */
static int is_alphanumeric(Slice text) {
    for (Py_ssize_t n = 0; n < text.size; n++) {
        uint8_t byte = text.at[n];
        if (!((byte >= '0' && byte <= '9') || ((byte | 0x20) >= 'a' && (byte | 0x20) <= 'z'))) return 0;
    }
    return text.size > 0;
}

/* Scan the properties of a message, which are empty or end with a separator. PLAIN_PROPERTIES: `parsed` is filled and
 * they are stored unchanged. MAY_BE_DEFERRED: the same unless they contain a delay, a time or a transaction. */
static int scan_properties(const uint8_t *start, Py_ssize_t size, ParsedProperties *parsed) {
    const uint8_t *end = start + size, *item = start;
    int found = PLAIN_PROPERTIES;
    Slice *open = NULL; /* the known property whose value is being passed */
    memset(parsed, 0, sizeof *parsed);
    if (size > 0 && end[-1] != 2) return NEEDS_PYTHON;
    for (const uint8_t *at = start; at < end; at++) {
        switch (*at) {
            case 'L':
                if (ends_with(start, at, "DE", 2)) found = MAY_BE_DEFERRED;
                break;
            case 'A':
                if (ends_with(start, at, "TR", 2)) found = MAY_BE_DEFERRED;
                break;
            case 2:
                if (at > start && at[-1] == 1) return NEEDS_PYTHON;
                if (open != NULL) {
                    open->size = at - open->at;
                    open = NULL;
                }
                item = at + 1;
                break;
            case 1: {
                Py_ssize_t name = at - item;
                if (ends_with(start, at, "CLUSTER", 7) || ends_with(start, at, "MSG_REGION", 10) ||
                    ends_with(start, at, "POP_CK", 6) || ends_with(start, at, "_PRIORITY_", 10))
                    return NEEDS_PYTHON;
                if (ends_with(start, at, "UNIQ_KEY", 8)) {
                    if (name != 8 || parsed->unique_key.at != NULL) return NEEDS_PYTHON;
                    open = &parsed->unique_key;
                    open->at = at + 1;
                } else if (name == 4 && memcmp(item, "TAGS", 4) == 0) {
                    open = &parsed->tags;
                    open->at = at + 1;
                } else if (name == 4 && memcmp(item, "KEYS", 4) == 0) {
                    open = &parsed->keys;
                    open->at = at + 1;
                } else if (name == 4 && memcmp(item, "WAIT", 4) == 0) {
                    parsed->no_wait_store |= end - at > 6 && memcmp(at + 1, "false\2", 6) == 0;
                }
                break;
            }
            default:
                break;
        }
    }
    return parsed->unique_key.at == NULL || is_alphanumeric(parsed->unique_key) ? found : NEEDS_PYTHON;
}
