/* jsonr.h - reads one JSON document into a tree. For documents given on the command line, not for
 * streams.
 *
 * The text is untrusted: depth and size are bounded, and the whole document must be valid. Strings
 * are UTF-8. A string with a NUL is refused, so all strings can be used as C strings. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#define JSON_DEPTH_MAX 32
#define JSON_SIZE_MAX (16u * 1024u * 1024u)

enum json_kind { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

struct json {
    enum json_kind kind;
    const char *key;    /* of an object member, else NULL */
    const char *text;   /* STRING: its content. NUMBER: as it was written */
    struct json *child; /* first element or member */
    struct json *next;
};

struct json_doc {
    struct json *root;
    struct json *nodes;
    char *text;
};

/* The tree does not refer to `text` after the call. */
int json_read(const char *text, size_t len, struct json_doc *ret, struct err *err);
void json_doc_done(struct json_doc *d);

/* All accept NULL. */
const struct json *json_get(const struct json *object, const char *key); /* NULL if there is no such key */
/* the text of a string; NULL for any other kind */
const char *json_text(const struct json *j);
bool json_u64(const struct json *j, uint64_t *ret);
/* A number of milliseconds with up to 3 decimals, as microseconds. */
bool json_ms(const struct json *j, uint64_t *ret_us);
