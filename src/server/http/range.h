/* range.h - which part of a thing a request wants, and whether it wants it at all (RFC 9110, 13 and 14).
 *
 * One range is honoured. A header with several, or one that is malformed, is read as if it were absent, as the standard
 * allows: nobody gets to make the server send a file ten thousand times in pieces. */
#pragma once

#include "core/base/base.h"

enum range_kind { RANGE_WHOLE, RANGE_PART, RANGE_UNSATISFIABLE };
enum range_kind range_parse(const char *header, uint64_t size, uint64_t *ret_from, uint64_t *ret_len);

/* Whether an If-Match or If-None-Match header names the tag. `weak` lets W/"x" stand for "x". */
bool range_tag_listed(const char *header, const char *etag, bool weak);
