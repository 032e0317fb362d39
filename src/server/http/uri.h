/* uri.h - the target of a request taken apart: path segments and query, each decoded once and never again.
 *
 * What could be read in two ways is refused instead of repaired: a fragment, bytes that must be encoded, an encoding
 * that is none, NUL, text that is no UTF-8, an empty segment, `.` and `..` in every spelling. So the string that routes
 * a request is the string that authorises it. */
#pragma once

#include "core/base/err.h"

#define URI_SEGMENTS_MAX 64
#define URI_QUERY_MAX 64

struct uri_query_pair {
    const char *name, *value;
};

struct uri {
    const char *seg[URI_SEGMENTS_MAX]; /* may hold slashes, that were encoded */
    size_t nsegs;
    bool trailing_slash; /* the path ends in one; "/" has no segment and this */
    struct uri_query_pair query[URI_QUERY_MAX];
    size_t nquery;
};

/* `mem` has room for strlen(target) + 2 bytes and holds the decoded texts. */
int uri_parse(const char *target, char *mem, struct uri *ret, struct err *err);

const char *uri_query(const struct uri *u, const char *name); /* NULL without it */
