/* path.h - the path of a request in the form in which rules compare it.
 *
 * Percent-encoded bytes are decoded once and dot segments are removed. Paths that an origin server
 * could read in another way than a rule are refused:
 *
 *     %2F %5C \          a separator inside of a segment
 *     %00, %01-%1F, %7F  control characters
 *     %zz, % at the end  not an encoded byte
 *     %252F %252E %255C %2500 %2525  a server that decodes twice would read another path
 *     //                 an empty segment, which some servers remove
 *     /../ above the root
 *     ;                  after a segment "." or "..", which some servers cut off
 *
 * The request itself is sent on unchanged. */
#pragma once

#include "core/base/buf.h"
#include "core/http1/head.h"

/* Appends the path to `ret`, which never becomes longer by more than path.len + 1. An empty path is
 * "/". A path must begin with '/' and have no query. */
int http1_path_normalize(struct http1_text path, struct buf *ret, struct err *err);
