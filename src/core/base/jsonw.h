/* jsonw.h - writes JSON into a buf, front to back, without a tree.
 *
 * The writer handles commas and nesting. Strings may contain any bytes: invalid UTF-8 becomes
 * U+FFFD, and control characters are escaped. `indent` > 0 writes one member per line. */
#pragma once

#include "core/base/buf.h"

struct jsonw {
    struct buf *out;
    int indent;
    int depth;
    bool first; /* the next value is the first of its container */
    bool keyed; /* a key was written; its value comes next */
};

void jsonw_init(struct jsonw *w, struct buf *out, int indent);
void jsonw_object(struct jsonw *w);
void jsonw_array(struct jsonw *w);
void jsonw_end_object(struct jsonw *w);
void jsonw_end_array(struct jsonw *w);
void jsonw_key(struct jsonw *w, const char *key);
void jsonw_str(struct jsonw *w, const char *s);
void jsonw_strn(struct jsonw *w, const char *s, size_t n);
void jsonw_u64(struct jsonw *w, uint64_t v);
void jsonw_i64(struct jsonw *w, int64_t v);
void jsonw_bool(struct jsonw *w, bool v);
void jsonw_null(struct jsonw *w);
void jsonw_raw(struct jsonw *w, const char *json); /* a value that is already JSON; not checked */
/* "key": value in one call. */
void jsonw_kstr(struct jsonw *w, const char *key, const char *s);
void jsonw_kstr_if(struct jsonw *w, const char *key, const char *s); /* NULL or "": writes nothing */
void jsonw_ku64(struct jsonw *w, const char *key, uint64_t v);
void jsonw_kms(struct jsonw *w, const char *key, uint64_t ns); /* milliseconds with up to 3 decimals */
void jsonw_ki64(struct jsonw *w, const char *key, int64_t v);
void jsonw_ki64_or_null(struct jsonw *w, const char *key, bool known, int64_t v);
void jsonw_kbool(struct jsonw *w, const char *key, bool v);
void jsonw_kraw(struct jsonw *w, const char *key, const char *json);
void jsonw_kobject(struct jsonw *w, const char *key); /* the caller writes the members and ends the object */
void jsonw_karray(struct jsonw *w, const char *key);
