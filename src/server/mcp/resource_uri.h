/* resource_uri.h - the URIs of resources of the Model Context Protocol.
 *
 *     cove://sandboxes/{id}/files/{path}   a file; its absolute path in the sandbox, without the
 *                                          first slash, and percent-encoded
 *     cove://executions/{id}/receipt       the receipt of an execution that has ended */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/id.h"

#define RESOURCE_PATH_SIZE 4096

struct resource_uri {
    char sandbox[ID_SIZE], execution[ID_SIZE]; /* one of them is "" */
    char path[RESOURCE_PATH_SIZE];             /* absolute; "": not a file */
};

bool resource_uri_parse(const char *uri, struct resource_uri *ret);
void resource_uri_write_file(struct buf *out, const char *sandbox, const char *path); /* an absolute path */
