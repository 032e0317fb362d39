/* delegation.h - handing on a part of one's rights: sandbox tokens, signed URLs of files, tickets.
 *
 * Nobody hands on more than they have, nor for longer than they have it themselves. What was handed on cannot be
 * handed on again, with one exception: the holder of a sandbox token may take tickets, because a browser needs them. */
#pragma once

#include "server/auth/auth.h"
#include "server/auth/delegated_token.h"
#include "server/auth/tickets.h"

#define DELEGATION_TTL_MAX_MS (24 * 3600 * 1000ull)
#define DELEGATION_TOKEN_TTL_MS (3600 * 1000ull)
#define DELEGATION_URL_TTL_MS (15 * 60 * 1000ull)
/* Scopes that a sandbox token may carry: what can be done with one sandbox. */
#define DELEGATION_SCOPES                                                                                          \
    (SCOPE_BIT(SANDBOXES_READ) | SCOPE_BIT(SANDBOXES_WRITE) | SCOPE_BIT(EXECUTIONS) | SCOPE_BIT(EXECUTIONS_READ) | \
     SCOPE_BIT(FILES) | SCOPE_BIT(FILES_READ))

struct delegation_spec {
    const char *sandbox, *owner; /* and the tenant it belongs to; `by` is known to reach it */
    uint32_t scopes;             /* at least one, of DELEGATION_SCOPES */
    uint16_t port;               /* 0: all of the sandbox */
    uint64_t ttl_ms;             /* 0: the usual time, or until `by` ends if that is sooner */
};

/* Adds the token to out; *ret is what it says. */
int delegation_make_token(struct auth *a, const struct principal *by, const struct delegation_spec *spec,
                          uint64_t now_ms, struct buf *out, struct delegated_token *ret, struct err *err);
/* The signature for a request with this method ("GET", "PUT") about this path of the sandbox; of the spec, scopes and
 * port are not looked at. */
int delegation_sign_url(struct auth *a, const struct principal *by, const struct delegation_spec *spec,
                        const char *method, const char *path, uint64_t now_ms, struct buf *out,
                        struct delegated_token *ret, struct err *err);
/* All rights of `by`, for one request. */
int delegation_make_ticket(struct auth *a, const struct principal *by, const char *method, const char *path,
                           uint64_t now_ns, char ret[TICKET_SIZE], struct err *err);
/* Ends every token and every signature that this server has made. */
void delegation_revoke_all(struct auth *a, store_done_fn *done, void *arg);
