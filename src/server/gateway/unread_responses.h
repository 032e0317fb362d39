/* unread_responses.h - the quota of a tenant for responses that its clients have not read yet. */
#pragma once

#include "server/gateway/gateway.h"

/* ERR_EXECUTOR_FULL: the tenant has too many unread bytes. */
int unread_responses_check(const struct gateway *gateway, const char *owner, struct err *err);
/* Counts the bytes until the request ends. */
void unread_responses_add(struct http_req *req, struct gateway *gateway, const char *owner, uint64_t bytes);
