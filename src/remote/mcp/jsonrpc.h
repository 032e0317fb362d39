/* jsonrpc.h - messages of JSON-RPC 2.0 as the Model Context Protocol restricts them: no batches,
 * ids are strings or integers, parameters are objects.
 *
 * A message is bounded in size, depth and number of values before it is parsed. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"

#include <jansson.h>

#define JSONRPC_MESSAGE_MAX (8 * MIB)
#define JSONRPC_DEPTH_MAX 64u
#define JSONRPC_ID_MAX 256u /* bytes of a string id */

#define JSONRPC_PARSE_ERROR (-32700)
#define JSONRPC_INVALID_REQUEST (-32600)
#define JSONRPC_METHOD_NOT_FOUND (-32601)
#define JSONRPC_INVALID_PARAMS (-32602)
#define JSONRPC_INTERNAL_ERROR (-32603)

enum jsonrpc_kind { JSONRPC_REQUEST, JSONRPC_NOTIFICATION, JSONRPC_RESULT, JSONRPC_ERROR };

struct jsonrpc_message {
    enum jsonrpc_kind kind;
    json_t *document;     /* owned: jsonrpc_message_done(); everything below is borrowed from it */
    const json_t *id;     /* a string or an integer; NULL: a notification, or an error without id */
    const char *method;   /* request, notification */
    const json_t *params; /* an object, or NULL */
    const json_t *result; /* any value */
    int64_t code;         /* error */
    const char *text;     /* message of an error */
    const json_t *data;   /* of an error, or NULL */
};

/* ret_code: JSONRPC_PARSE_ERROR or JSONRPC_INVALID_REQUEST, for the answer to a bad message; after
 * JSONRPC_INVALID_REQUEST ret->document and ret->id are set as far as they could be read. */
int jsonrpc_parse(const char *text, size_t len, struct jsonrpc_message *ret, int *ret_code, struct err *err);
void jsonrpc_message_done(struct jsonrpc_message *m);

/* Append one message on one line, without a line break. `params`, `result` and `data` are JSON
 * text, and NULL omits them. `id` is as parsed; NULL writes null. */
void jsonrpc_write_request(struct buf *out, const json_t *id, const char *method, const char *params);
void jsonrpc_write_notification(struct buf *out, const char *method, const char *params);
void jsonrpc_write_result(struct buf *out, const json_t *id, const char *result);
void jsonrpc_write_error(struct buf *out, const json_t *id, int64_t code, const char *text, const char *data);
