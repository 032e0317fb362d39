/* json_input.h - reading JSON that a stranger wrote into plain C, strictly.
 *
 * A document is bounded in size and depth before it is parsed; a key that comes twice, a NUL in a string, a number that
 * does not fit and anything behind the document are refused. Every field has a path ("resources.memoryBytes"), and an
 * error begins with it. Fields that do not exist are refused with the nearest that does: what a client believes to have
 * asked for is never silently left out.
 *
 * The readers leave *ret alone when the field is absent, so that presets stay, and say through *ret_found (which may be
 * NULL) whether it was there. null is not "absent": it is of the wrong kind, like any other. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/str.h"

#include <jansson.h>

#define JSON_INPUT_DEPTH_MAX 16
#define JSON_INPUT_WEIGHT_MAX (128u * 1024u)
#define JSON_INPUT_SIZE_MAX (4u * 1024u * 1024u)

/* For a message that repeats a stranger's words; as everywhere, there may be nobody who wants it. */
static inline void err_sanitize(struct err *err)
{
    if (err)
        str_strip_control_chars(err->msg);
}

/* Whether JSON text goes no deeper and has no more in it, counted before it is parsed: a value counts as 1, an object
 * or a list as JSON_INPUT_CONTAINER_WEIGHT, which is what they cost. Two bytes of text can make hundreds in memory. */
#define JSON_INPUT_CONTAINER_WEIGHT 8u
bool json_input_within_limits(const char *text, size_t len, unsigned deep_max, size_t heavy_max);
/* An object. The caller owns *ret: json_decref(). */
int json_input_parse(const char *text, size_t len, json_t **ret, struct err *err);

static inline void auto_json_(json_t **j)
{
    json_decref(*j);
}
#define auto_json __attribute__((cleanup(auto_json_))) json_t

/* `path` is the name of the object with a '.' behind it, or "". */
int json_input_require_known_fields(const json_t *object, const char *path, const char *const *names, struct err *err);
int json_input_u64(const json_t *object, const char *path, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
                   bool *ret_found, struct err *err);
int json_input_bool(const json_t *object, const char *path, const char *name, bool *ret, struct err *err);
/* Text of min..max bytes, borrowed from the object. */
int json_input_text(const json_t *object, const char *path, const char *name, size_t min, size_t max, const char **ret,
                    struct err *err);
/* One of the words; its index. */
int json_input_enum(const json_t *object, const char *path, const char *name, const char *const *words, unsigned *ret,
                    struct err *err);
int json_input_object(const json_t *object, const char *path, const char *name, json_t **ret,
                      struct err *err); /* borrowed */
int json_input_array(const json_t *object, const char *path, const char *name, size_t max, json_t **ret,
                     struct err *err);
