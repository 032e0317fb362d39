/* json_input.h - strict reading of untrusted JSON into plain C values.
 *
 * A document is bounded in size and depth before it is parsed. A duplicate key, a NUL in a string,
 * a number out of range and bytes after the document are errors. Every field has a path
 * ("resources.memoryBytes"), and an error begins with it. An unknown field is an error that
 * suggests the nearest known one: a field that a client sends is never silently ignored.
 *
 * The readers leave *ret unchanged when the field is absent, so that defaults stay, and set
 * *ret_found (which may be NULL) to whether the field was present. null is not "absent": it is a
 * value of the wrong type. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/str.h"

#include <jansson.h>

#define JSON_INPUT_DEPTH_MAX 16
#define JSON_INPUT_WEIGHT_MAX (128u * 1024u)
#define JSON_INPUT_SIZE_MAX (4u * 1024u * 1024u)

/* For a message that quotes untrusted text. err may be NULL, as everywhere. */
static inline void err_sanitize(struct err *err)
{
    if (err)
        str_strip_control_chars(err->msg);
}

/* Whether JSON text stays within a depth and a weight, measured before parsing: a value weighs 1,
 * an object or a list JSON_INPUT_CONTAINER_WEIGHT, in proportion to their memory. Two bytes of text
 * can take hundreds of bytes in memory. */
#define JSON_INPUT_CONTAINER_WEIGHT 8u
bool json_input_within_limits(const char *text, size_t len, unsigned deep_max, size_t heavy_max);
/* Parses an object. The caller owns *ret: json_decref(). */
int json_input_parse(const char *text, size_t len, json_t **ret, struct err *err);

static inline void auto_json_(json_t **j)
{
    json_decref(*j);
}
#define auto_json __attribute__((cleanup(auto_json_))) json_t

/* `path` is the name of the object followed by '.', or "". */
int json_input_require_known_fields(const json_t *object, const char *path, const char *const *names, struct err *err);
int json_input_u64(const json_t *object, const char *path, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
                   bool *ret_found, struct err *err);
int json_input_bool(const json_t *object, const char *path, const char *name, bool *ret, struct err *err);
/* A string of min..max bytes, borrowed from the object. */
int json_input_text(const json_t *object, const char *path, const char *name, size_t min, size_t max, const char **ret,
                    struct err *err);
/* One of the words; *ret is its index. */
int json_input_enum(const json_t *object, const char *path, const char *name, const char *const *words, unsigned *ret,
                    struct err *err);
int json_input_object(const json_t *object, const char *path, const char *name, json_t **ret, struct err *err);
int json_input_array(const json_t *object, const char *path, const char *name, size_t max, json_t **ret,
                     struct err *err);
