/* delegation.h - creates delegated credentials: sandbox tokens, signed URLs of files, tickets.
 *
 * A principal cannot delegate more than it has, nor for longer. A delegated credential cannot be
 * delegated again, with one exception: the holder of a sandbox token may create tickets, because a
 * browser needs them. */
#pragma once

#include "server/auth/auth.h"
#include "server/auth/delegated_token.h"
#include "server/auth/tickets.h"

#define DELEGATION_TTL_MAX_MS (24 * 3600 * 1000ull)
#define DELEGATION_TOKEN_TTL_MS (3600 * 1000ull)
#define DELEGATION_URL_TTL_MS (15 * 60 * 1000ull)
/* Scopes that a sandbox token may have: operations on one sandbox. */
#define DELEGATION_SCOPES                                                                                          \
    (SCOPE_BIT(SANDBOXES_READ) | SCOPE_BIT(SANDBOXES_WRITE) | SCOPE_BIT(EXECUTIONS) | SCOPE_BIT(EXECUTIONS_READ) | \
     SCOPE_BIT(FILES) | SCOPE_BIT(FILES_READ))

struct delegation_spec {
    const char *sandbox, *owner; /* sandbox and its tenant; the caller has checked that `by` can access it */
    uint32_t scopes;             /* at least one of DELEGATION_SCOPES */
    uint16_t port;               /* 0: the whole sandbox */
    uint64_t ttl_ms;             /* 0: the default, or until `by` expires if that is sooner */
};

/* Appends the token to out; *ret receives its content. */
int delegation_make_token(struct auth *a, const struct principal *by, const struct delegation_spec *spec,
                          uint64_t now_ms, struct buf *out, struct delegated_token *ret, struct err *err);
/* Appends the signature for a request with this method ("GET", "PUT") and this path in the sandbox.
 * Scopes and port of the spec are ignored. */
int delegation_sign_url(struct auth *a, const struct principal *by, const struct delegation_spec *spec,
                        const char *method, const char *path, uint64_t now_ms, struct buf *out,
                        struct delegated_token *ret, struct err *err);
/* Creates a ticket with all scopes of `by`, for one request. */
int delegation_make_ticket(struct auth *a, const struct principal *by, const char *method, const char *path,
                           uint64_t now_ns, char ret[TICKET_SIZE], struct err *err);
/* Invalidates every token and every signature that this server has created. */
void delegation_revoke_all(struct auth *a, store_done_fn *done, void *arg);
