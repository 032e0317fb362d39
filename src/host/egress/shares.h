/* shares.h - how the sandboxes of all tenants share one proxy.
 *
 * Each sandbox has limits of its own. Tenants share what is left: a tenant may hold a further
 * connection, or a further buffer, only while it holds less than twice as many as are free. So one
 * tenant gets at most two thirds, two get two fifths each, and the next one always finds some. In a
 * turn of the loop each tenant may accept and move only so much; the rest waits for a later turn.
 *
 * The caller passes the time in; nothing here reads a clock. */
#pragma once

#include "core/base/base.h"
#include "core/wire/egress.h"

#define SHARES_SANDBOX_CONNECTIONS 256u
#define SHARES_SANDBOX_RATE 50u /* new connections each second */
#define SHARES_SANDBOX_BURST 200u
#define SHARES_TENANT_RATE 1000u
#define SHARES_TENANT_BURST 2000u
#define SHARES_QUERY_RATE 200u /* DNS queries of a sandbox each second */
#define SHARES_QUERY_BURST 400u
#define SHARES_ACCEPTS_PER_TURN 16u
#define SHARES_TENANT_ACCEPTS_PER_TURN 4u
#define SHARES_TENANT_BYTES_PER_TURN (512u * 1024u)
#define SHARES_BUFFERS (128ull * 1024 * 1024) /* bytes, of all tenants */

/* Tokens that come back at a constant rate, kept as the instant at which all are back. All zero:
 * full. */
struct share_bucket {
    uint64_t full_at;
};

struct share_tenant {
    struct share_tenant *next;
    char name[EGRESS_SECRET_NAME_MAX];
    unsigned sandboxes; /* that are bound to it */
    size_t connections;
    size_t buffered; /* bytes */
    struct share_bucket rate;
    uint64_t turn; /* of the two counts below */
    unsigned turn_accepts;
    size_t turn_bytes;
};

struct shares {
    struct share_tenant *tenants;
    size_t connections, connections_max; /* of all tenants */
    size_t tenant_connections_max;
    size_t buffered;
    uint64_t turn;
    unsigned turn_accepts;
};

/* Takes a token. False: none is left, and *ret_at is when one will be. */
bool share_bucket_take(struct share_bucket *b, unsigned rate, unsigned burst, uint64_t now, uint64_t *ret_at);

void shares_init(struct shares *s, size_t connections_max, size_t tenant_connections_max);
void shares_done(struct shares *s);
/* The tenant of a sandbox that is bound, and the end of that binding. A tenant exists while it has
 * sandboxes or connections. */
struct share_tenant *shares_join(struct shares *s, const char *tenant);
void shares_leave(struct shares *s, struct share_tenant *t);

/* Whether a connection of the tenant may be accepted in this turn. `turn` is any number that
 * changes from turn to turn. */
bool shares_may_accept(struct shares *s, struct share_tenant *t, uint64_t turn);
/* Whether the tenant may hold one more connection. */
bool shares_has_room(const struct shares *s, const struct share_tenant *t);
void shares_add_connection(struct shares *s, struct share_tenant *t);
void shares_remove_connection(struct shares *s, struct share_tenant *t);
/* Whether the tenant may move bytes in this turn, and may have to buffer them. */
bool shares_may_move(struct shares *s, struct share_tenant *t, uint64_t turn);
bool shares_may_buffer(const struct shares *s, const struct share_tenant *t);
void shares_count_moved(struct share_tenant *t, size_t bytes);
void shares_buffer(struct shares *s, struct share_tenant *t, size_t bytes);
void shares_unbuffer(struct shares *s, struct share_tenant *t, size_t bytes);
