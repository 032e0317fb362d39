/* range.h - the requested part of a resource, and conditional requests (RFC 9110, 13 and 14).
 *
 * One range is supported. A header with several ranges or a malformed one is ignored, as the
 * standard allows: no client can make the server send a file ten thousand times in pieces. */
#pragma once

#include "core/base/base.h"

enum range_kind { RANGE_WHOLE, RANGE_PART, RANGE_UNSATISFIABLE };
enum range_kind range_parse(const char *header, uint64_t size, uint64_t *ret_from, uint64_t *ret_len);

/* Returns whether an If-Match or If-None-Match header contains the tag. With `weak`, W/"x" matches
 * "x". */
bool range_tag_listed(const char *header, const char *etag, bool weak);
