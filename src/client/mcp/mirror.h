/* mirror.h - the headers of a request of MCP revision 2026-07-28: they repeat parts of the message,
 * so that a proxy can route without reading it. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"

#include <jansson.h>

#define MIRROR_VERSION_KEY "io.modelcontextprotocol/protocolVersion" /* in params._meta */
#define MIRROR_HEADERS_MAX 40u

struct mirror; /* the parameters of tools that their schemas want in headers */

struct mirror *mirror_new(void);
void mirror_free(struct mirror *m);
DEFINE_AUTO(mirror, mirror_free);

/* The revision that the message names; NULL: it is of the era of sessions. */
const char *mirror_version(const json_t *params);

/* Learns x-mcp-header annotations from the result of tools/list. Tools whose annotations are
 * invalid get no headers. */
void mirror_learn(struct mirror *m, const json_t *result);

/* The headers of a request or notification: "Name: value". The caller frees each. Returns how many
 * there are. */
size_t mirror_headers(const struct mirror *m, const char *method, const json_t *params, const char *version,
                      char *ret[MIRROR_HEADERS_MAX]);

/* Appends a header value: as it is if it is visible ASCII without outer blanks, otherwise as
 * =?base64?...?=. */
void mirror_write_value(struct buf *out, const char *value, size_t len);
