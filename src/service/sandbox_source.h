/* sandbox_source.h - where a sandbox comes from: a member of a pool, or a new sandbox.
 *
 * A source asks the pools for a member and claims it; without a member it makes a new sandbox. A
 * member that died before it confirmed the claim has run nothing for its new owner, so it can be
 * replaced once by a new sandbox. The pools learn exactly once how each request to them ended. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"
#include "sandbox/engine.h"
#include "sandbox/pool/pools.h"
#include "service/secrets.h"
#include "service/spec.h"

struct sandbox_supply { /* what the sources of a server share; all pointers are borrowed */
    struct ev *ev;
    struct pools *pools;
    struct engine *engine;            /* must not be NULL while a source is started or replaced */
    int hidden_dir;                   /* directory for the empty objects that are mounted over hidden paths */
    uint64_t required_limits;         /* bit per limit: refuse a host that cannot enforce it completely */
    bool require_all_walls;           /* refuse sandboxes without the walls that only root can raise */
    struct egress_share egress_share; /* of the egress proxy, for each sandbox */
    struct secrets *secrets;          /* NULL: rules that name secrets are refused */
    /* The egress proxy added a secret to requests of a sandbox. May be NULL. */
    void (*on_secret_used)(void *arg, const char *owner, const char *sandbox, const char *name, const char *host,
                           uint32_t count);
    void *arg; /* of on_secret_used */
};

enum sandbox_source_state {
    SANDBOX_SOURCE_NONE,     /* nothing was requested yet */
    SANDBOX_SOURCE_MISSED,   /* the pools had no member; the new sandbox is not ready yet */
    SANDBOX_SOURCE_CLAIMING, /* a member that has not confirmed the claim yet */
    SANDBOX_SOURCE_CLAIMED,  /* a member that has confirmed the claim */
    SANDBOX_SOURCE_NEW,      /* a new sandbox; the pools were not asked, or expect no report any more */
    SANDBOX_SOURCE_FAILED,   /* the failure was reported to the pools */
};

/* Embedded in its owner, which sets the fields of the first block and leaves the others zero. */
struct sandbox_source {
    const struct sandbox_supply *supply;
    const struct spec *spec;
    const char *tenant;             /* whose share of the egress proxy the sandbox uses */
    const char *id;                 /* of a new sandbox, or of the member; NULL: a new sandbox generates one */
    struct sandbox_handle **handle; /* the owner's handle; *handle is NULL without a sandbox */
    const struct sandbox_handle_ops *ops;
    void *arg; /* of ops */

    enum sandbox_source_state state;
    uint64_t began_ns;     /* when the pools were asked */
    struct pool_loan loan; /* loan.result: what the pools had; POOL_MISS after a replacement */
};

void sandbox_supply_secret_used(const struct sandbox_supply *s, const char *owner, const char *sandbox,
                                const char *name, const char *host, uint32_t count);

/* Asks the pools for a member, which becomes *handle, unless the spec needs a mount, which no
 * member has. borrower: the tenant that may return the member to its pool; NULL: the owner keeps
 * it. */
void sandbox_source_take(struct sandbox_source *s, const char *borrower);
/* Claims the member, or makes a new sandbox; on_ready or on_failed of ops follows. On failure
 * *handle is NULL. */
int sandbox_source_start(struct sandbox_source *s, struct err *err);
/* Whether the error means that a member died before it confirmed the claim. */
bool sandbox_source_member_died(const struct sandbox_source *s, const struct err *err);
/* Replaces a member that died by a new sandbox; the member reports nothing more. */
int sandbox_source_replace(struct sandbox_source *s, struct err *err);
/* Reports to the pools that the sandbox is ready, or will never be. No effect if the pools expect
 * no report. */
void sandbox_source_finish(struct sandbox_source *s, bool ready);
bool sandbox_source_is_pending(const struct sandbox_source *s); /* the pools expect a report */
bool sandbox_source_is_member(const struct sandbox_source *s);  /* the sandbox was a member of a pool */
/* Whether the pool of a borrowed member may accept its return. */
bool sandbox_source_accepts_return(const struct sandbox_source *s);
/* Returns a borrowed member; claimed_spec need not be set. True: the pool took it, and *handle is
 * NULL. */
bool sandbox_source_return(struct sandbox_source *s, struct pool_return r);
