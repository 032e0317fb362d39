/* audit_trail.h - what handlers add to the audit record of their request. */
#pragma once

#include "server/gateway/gateway.h"

/* Objects acted on besides those in the path; text; numbers; the executed code or input, as a hash
 * and a length unless gateway_settings.audit_content is set. `name` is a static string; neither
 * `name` nor `key` needs escaping. An added object replaces a parameter of the path with the same
 * name; a key must not be added twice. */
void audit_trail_add_target(const struct http_req *req, const char *name, const char *value);
void audit_trail_add_detail(const struct http_req *req, const char *key, const char *value);
void audit_trail_add_number(const struct http_req *req, const char *key, uint64_t value);
void audit_trail_add_content(const struct http_req *req, const char *key, const char *data, size_t len);
/* The same for an array of strings, stored as in /proc/PID/cmdline: each ends with a NUL. The array
 * ends with NULL and may be empty. */
void audit_trail_add_strings(const struct http_req *req, const char *key, const char *const *words);
/* The action failed, although the status of the answer does not say so: the record has the outcome
 * of the error, and a refusal counts as one. Before the answer. */
void audit_trail_set_error(const struct http_req *req, enum err_id error);
/* Records `accepted` when the work begins; the record is written while the work goes on. */
void audit_trail_record_accepted(const struct http_req *req);
/* Records an action that has no HTTP request of its own, such as a message on a WebSocket. request:
 * the id of the request that caused it; NULL: none. */
uint64_t audit_trail_record_action(struct gateway *gateway, const struct principal *principal, const char *address,
                                   const char *request, const char *action, const char *outcome,
                                   const struct audit_pair *target, size_t ntarget, const char *details);
