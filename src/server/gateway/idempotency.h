/* idempotency.h - carries out a request with an Idempotency-Key once. */
#pragma once

#include "server/gateway/gateway.h"

/* Decides whether a request that creates an object is carried out. fresh: it is, and the new object
 * gets `id`. Otherwise an earlier request with the same key and body created `id`; answer with that
 * object. After an error, the request is already answered and `dropped`, unless NULL, is called. */
typedef void idempotency_fn(struct http_req *req, bool fresh, const char *id, void *arg);
void idempotency_begin(struct http_req *req, struct gateway *gateway, const char kind[2], idempotency_fn *fn, void *arg,
                       void (*dropped)(void *arg));
/* Records that a fresh request creates `now` instead of the chosen `id`. Used when the object is an
 * existing sandbox, whose execution starts with this request. */
void idempotency_set_resource(struct http_req *req, struct gateway *gateway, const char *id, const char *now);
/* The request was refused: the key becomes free again. */
void idempotency_release_key(struct http_req *req, struct gateway *gateway, const struct err *why);
