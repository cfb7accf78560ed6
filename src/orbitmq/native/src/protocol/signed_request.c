/* Signed requests: which of those that received bytes begin with are signed by a user who may make them. Twin of
 * auth/guard.py and auth/signature.py, for the requests that the native extension serves.
 *
 * Only the success path is here: a request whose user, signature or rule is not as it should be, or that is written in
 * an unusual way, ends the bytes that are verified, and the guard decides. Nothing that the parsers of the requests
 * could read in another way is verified: a field or a member that comes twice least of all. */
#include "protocol/signed_request.h"
#include "base/sha1.h"
#include "protocol/properties.h"
#include "protocol/remoting_header.h"

#define MOST_SIGNED_FIELDS 32
#define SIGNATURE_SIZE 28 /* 20 bytes in Base64 */
#define MOST_GRANT_TEXT 512 /* longer names of topics and groups are for the guard */

typedef struct { Slice name; FieldText value; } SignedField;

typedef struct {
    SignedField fields[MOST_SIGNED_FIELDS]; /* in the order of their names */
    int count;
    int64_t code;
} SignedRequest;

/* What Python keeps of a user: see signing_key. */
typedef struct { HmacKey key; uint8_t needs_grant; } SigningKey;

/* Enter a field in its order; 0 if it is there already. */
static int enter_signed_field(SignedRequest *request, Slice name, const FieldText *value) {
    int at = request->count;
    if (at == MOST_SIGNED_FIELDS || name.size == 0 || value->text.at == NULL) return 0;
    for (; at > 0; at--) {
        Slice before = request->fields[at - 1].name;
        Py_ssize_t shared = before.size < name.size ? before.size : name.size;
        int order = memcmp(before.at, name.at, shared);
        if (order == 0) order = (before.size > name.size) - (before.size < name.size);
        if (order == 0) return 0;
        if (order < 0) break;
        request->fields[at] = request->fields[at - 1];
    }
    request->fields[at] = (SignedField){name, *value};
    request->count++;
    return 1;
}

static const uint8_t *read_signed_fields(const uint8_t *at, const uint8_t *end, SignedRequest *request) {
    Slice name;
    FieldText value;
    int more;
    if (at >= end || *at != '{') return NULL;
    at++;
    do {
        at = read_name(at, end, &name);
        if (at == NULL) return NULL;
        at = read_value(at, end, &value);
        if (at == NULL || !enter_signed_field(request, name, &value)) return NULL;
        more = follows(&at, end);
    } while (more == 1);
    return more == 0 ? at : NULL;
}

enum { SIGNED_CODE = 1, SIGNED_FIELDS = 2 };

/* Read the code and the fields; the other members are for the parser of the request. */
static int read_signed_json(const uint8_t *at, const uint8_t *end, SignedRequest *request) {
    Slice name;
    FieldText value;
    int seen = 0, more;
    at = skip_blanks(at, end);
    if (at >= end || *at++ != '{') return 0;
    do {
        int what = 0;
        at = read_name(at, end, &name);
        if (at == NULL || at >= end) return 0;
        if (slice_equals(name, "extFields")) {
            what = SIGNED_FIELDS;
            at = read_signed_fields(at, end, request);
        } else {
            int is_text = *at == '"';
            at = read_value(at, end, &value);
            if (at == NULL) return 0;
            if (slice_equals(name, "code")) {
                what = SIGNED_CODE;
                if (is_text || value.text.at == NULL || !int32_of(value.text, &request->code)) return 0;
            }
        }
        if (at == NULL || seen & what) return 0;
        seen |= what;
        more = follows(&at, end);
    } while (more == 1);
    return more == 0 && skip_blanks(at, end) == end && seen == (SIGNED_CODE | SIGNED_FIELDS);
}

static int read_signed_binary(const uint8_t *at, const uint8_t *end, SignedRequest *request) {
    Slice name;
    FieldText value;
    const uint8_t *header = at;
    at = binary_fields(header, end);
    if (at == NULL) return 0;
    request->code = get16(header);
    while (at < end) {
        at = read_binary_field(at, end, &name, &value);
        if (at == NULL || !enter_signed_field(request, name, &value)) return 0;
    }
    return 1;
}

/* The value of a field that is plain text; at NULL without it, or if it is something else. */
static Slice plain_field(const SignedRequest *request, const char *name) {
    for (int n = 0; n < request->count; n++) {
        const SignedField *field = &request->fields[n];
        if (slice_equals(field->name, name))
            return field->value.escapes || field->value.non_ascii || field->value.text.size > MOST_GRANT_TEXT ? (Slice){NULL, 0}
                                                                                                             : field->value.text;
    }
    return (Slice){NULL, 0};
}

/* The names that decide about a request besides its user; 0 for a code whose rule needs more. */
static int read_subjects(const SignedRequest *request, Slice *topic, Slice *group) {
    *group = (Slice){(const uint8_t *)"", 0};
    switch (request->code) {
        case 310: case 320: *topic = plain_field(request, "b"); break;
        case 10: *topic = plain_field(request, "topic"); break;
        case 11: case 361: case 200050: case 200051:
            *topic = plain_field(request, "topic");
            *group = plain_field(request, "consumerGroup");
            break;
        default: return 0;
    }
    return topic->at != NULL && group->at != NULL;
}

static void put_signature(uint8_t *out, const uint8_t *digest) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (int n = 0; n < SHA1_SIZE; n += 3) {
        uint32_t last = n + 2 < SHA1_SIZE ? digest[n + 2] : 0;
        uint32_t three = (uint32_t)digest[n] << 16 | (uint32_t)digest[n + 1] << 8 | last;
        for (int shift = 18; shift >= 0; shift -= 6) *out++ = letters[three >> shift & 63];
    }
    out[-1] = '='; /* 20 bytes leave one place empty */
}

/* Whether the signature is that of the key. The comparison takes the same time for every signature. */
static int is_signed(const SignedRequest *request, Slice body, Slice signature, const HmacKey *key) {
    uint8_t text[MAX_HEADER], digest[SHA1_SIZE], expected[SIGNATURE_SIZE], differing = 0;
    Sha1 hash;
    int unused = 0;
    hmac_begin(&hash, key);
    for (int n = 0; n < request->count; n++) {
        const SignedField *field = &request->fields[n];
        Slice value = field->value.text;
        if (field->name.at[0] == 'S' && slice_equals(field->name, "Signature")) continue;
        /* Clients up to 4.9.3 do not sign this one. */
        if (field->name.at[0] == '_' && slice_equals(field->name, "_UNIQUE_KEY_QUERY")) return 0;
        if (field->value.escapes) {
            Py_ssize_t size = unescape(value, text, &unused);
            if (size < 0) return 0;
            value = (Slice){text, size};
        }
        sha1_add(&hash, value.at, value.size);
    }
    sha1_add(&hash, body.at, body.size);
    hmac_end(&hash, key, digest);
    put_signature(expected, digest);
    for (int n = 0; n < SIGNATURE_SIZE; n++) differing |= expected[n] ^ signature.at[n];
    return differing == 0;
}

/* What stands for a right: where the request comes from, its user, code, topic and group. */
static PyObject *grant_of(Slice source, Slice user, int64_t code, Slice topic, Slice group) {
    Slice texts[] = {source, user, topic, group};
    Py_ssize_t size = 4;
    for (int n = 0; n < 4; n++) size += 2 + texts[n].size;
    PyObject *made = PyBytes_FromStringAndSize(NULL, size);
    if (made == NULL) return NULL;
    uint8_t *at = (uint8_t *)PyBytes_AS_STRING(made);
    put32(at, (uint32_t)code);
    at += 4;
    for (int n = 0; n < 4; n++) {
        put16(at, texts[n].size);
        memcpy(at + 2, texts[n].at, texts[n].size);
        at += 2 + texts[n].size;
    }
    return made;
}

/* The key of a user; NULL without an error if there is none. */
static PyObject *find_user(PyObject *users, Slice name) {
    PyObject *key = PyBytes_FromStringAndSize((const char *)name.at, name.size);
    PyObject *found = key == NULL ? NULL : PyDict_GetItemWithError(users, key);
    Py_XDECREF(key);
    if (found != NULL && (!PyBytes_Check(found) || PyBytes_GET_SIZE(found) != sizeof(SigningKey))) {
        PyErr_SetString(PyExc_TypeError, "users have keys made by signing_key");
        return NULL;
    }
    return found;
}

/* 1 if the request is verified, 0 if it is for the guard, -1 for an error. A right that is missing is put into `missing`. */
static int verify_one(const SignedRequest *request, Slice body, Slice source, PyObject *users, PyObject *grants, PyObject **missing) {
    Slice topic, group, user = plain_field(request, "AccessKey"), signature = plain_field(request, "Signature");
    SigningKey key;
    if (user.at == NULL || user.size == 0 || signature.at == NULL || signature.size != SIGNATURE_SIZE) return 0;
    if (!read_subjects(request, &topic, &group)) return 0;
    PyObject *found = find_user(users, user);
    if (found == NULL) return PyErr_Occurred() ? -1 : 0;
    memcpy(&key, PyBytes_AS_STRING(found), sizeof key);
    if (!is_signed(request, body, signature, &key.key)) return 0;
    if (!key.needs_grant) return 1;
    PyObject *grant = grant_of(source, user, request->code, topic, group);
    if (grant == NULL) return -1;
    int is_granted = PySet_Contains(grants, grant);
    if (is_granted == 0)
        *missing = Py_BuildValue("(Ny#Ly#y#)", grant, user.at, user.size, (long long)request->code, topic.at, topic.size, group.at, group.size);
    else
        Py_DECREF(grant);
    return is_granted == 0 && *missing == NULL ? -1 : is_granted;
}

/* verify_requests(data, source, users, grants) -> (size, missing): see _native.pyi. */
static PyObject *verify_requests(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    if (count != 4 || !PyBytes_Check(args[0]) || !PyBytes_Check(args[1]) || !PyDict_Check(args[2]) || !PySet_Check(args[3]) ||
        PyBytes_GET_SIZE(args[1]) > MOST_GRANT_TEXT) {
        PyErr_SetString(PyExc_TypeError, "verify_requests(data, source, users, grants)");
        return NULL;
    }
    const uint8_t *start = (const uint8_t *)PyBytes_AS_STRING(args[0]), *at = start, *end = start + PyBytes_GET_SIZE(args[0]);
    Slice source = {(const uint8_t *)PyBytes_AS_STRING(args[1]), PyBytes_GET_SIZE(args[1])};
    PyObject *missing = NULL;
    while (end - at >= PREFIX_SIZE) {
        uint32_t length = get32(at), word = get32(at + 4);
        Py_ssize_t header_size = word & 0xFFFFFF;
        if (length > INT32_MAX || header_size + 4 > (Py_ssize_t)length || header_size > MAX_HEADER || word >> 24 > 1 ||
            end - at - 4 < (Py_ssize_t)length)
            break;
        const uint8_t *header = at + PREFIX_SIZE, *body = header + header_size, *next = at + 4 + (Py_ssize_t)length;
        SignedRequest request;
        request.count = 0;
        if (!(word >> 24 ? read_signed_binary(header, body, &request) : read_signed_json(header, body, &request))) break;
        int is_verified = verify_one(&request, (Slice){body, next - body}, source, args[2], args[3], &missing);
        if (is_verified < 0) return NULL;
        if (!is_verified) break;
        at = next;
    }
    PyObject *size = PyLong_FromSsize_t(at - start);
    if (missing == NULL) missing = Py_NewRef(Py_None);
    PyObject *result = size == NULL ? NULL : PyTuple_Pack(2, size, missing);
    Py_XDECREF(size);
    Py_DECREF(missing);
    return result;
}

/* signing_key(secret, needs_grant) -> what verify_requests takes as the key of a user. */
static PyObject *signing_key(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count) {
    SigningKey key;
    if (count != 2 || !PyBytes_Check(args[0]) || !PyBool_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "signing_key(secret, needs_grant)");
        return NULL;
    }
    memset(&key, 0, sizeof key);
    hmac_make_key(&key.key, (const uint8_t *)PyBytes_AS_STRING(args[0]), PyBytes_GET_SIZE(args[0]));
    key.needs_grant = args[1] == Py_True;
    return PyBytes_FromStringAndSize((const char *)&key, sizeof key);
}
