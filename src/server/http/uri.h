/* uri.h - parses the target of a request into path segments and query, each decoded exactly once.
 *
 * Ambiguous input is refused instead of repaired: a fragment, bytes that must be encoded, an
 * invalid encoding, NUL, text that is not UTF-8, an empty segment, `.` and `..` in every spelling.
 * So the string that selects the route is the string that is authorized. */
#pragma once

#include "core/base/err.h"

#define URI_SEGMENTS_MAX 64
#define URI_QUERY_MAX 64

struct uri_query_pair {
    const char *name, *value;
};

struct uri {
    const char *seg[URI_SEGMENTS_MAX]; /* may contain slashes that were encoded */
    size_t nsegs;
    bool trailing_slash; /* the path ends in a slash; "/" has no segment and a trailing slash */
    struct uri_query_pair query[URI_QUERY_MAX];
    size_t nquery;
};

/* `mem` needs strlen(target) + 2 bytes and holds the decoded strings. */
int uri_parse(const char *target, char *mem, struct uri *ret, struct err *err);

const char *uri_query(const struct uri *u, const char *name); /* NULL if absent */
