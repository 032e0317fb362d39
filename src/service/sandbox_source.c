/*     NONE -> CLAIMING -> CLAIMED
 *          -> MISSED -> NEW            a new sandbox after a miss
 *          -> NEW                      the pools were not asked
 *     MISSED, CLAIMING -> FAILED       reported as failed
 *     FAILED -> NEW                    a dead member was replaced
 *
 * Invariant: the pools expect a report in MISSED and CLAIMING only, and the report ends both. */
#include "service/sandbox_source.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "sandbox/hide.h"
#include "service/bound_secrets.h"

#include <unistd.h>

static void sandbox_source_set_state(struct sandbox_source *s, enum sandbox_source_state state)
{
    static const char *const names[] = { "none", "missed", "claiming", "claimed", "new", "failed" };

    log_debug("sandbox %s: source %s -> %s",
              *s->handle ? sandbox_handle_id(*s->handle)
              : s->id    ? s->id
                         : "without id",
              names[s->state], names[state]);
    s->state = state;
}

static void sandbox_source_fill_spec(const struct sandbox_source *s, struct sandbox_spec *ret)
{
    spec_fill_sandbox_spec(s->spec, ret);
    ret->id = s->id;
    ret->require_enforced = s->supply->required_limits;
    ret->require_all_walls = s->supply->require_all_walls;
    ret->tenant = s->tenant;
    ret->share = s->supply->egress_share;
}

/* The spec with the values of its secrets, for a sandbox that is made or claimed now. */
static int sandbox_source_bind_secrets(const struct sandbox_source *s, struct sandbox_spec *spec,
                                       struct bound_secrets *bound, struct err *err)
{
    sandbox_source_fill_spec(s, spec);
    if (bound_secrets_fill(s->supply->secrets, s->tenant ? s->tenant : "", &s->spec->network, false, bound, err) < 0)
        return -1;
    spec->secrets = bound->entries;
    spec->nsecrets = bound->n;
    return 0;
}

void sandbox_supply_secret_used(const struct sandbox_supply *s, const char *owner, const char *sandbox,
                                const char *name, const char *host, uint32_t count)
{
    if (s->secrets)
        secrets_count_use(s->secrets, owner, name, count);
    if (s->on_secret_used)
        s->on_secret_used(s->arg, owner, sandbox, name, host, count);
}

/* --- a new sandbox --- */

/* The hidden paths of a policy, as mounts for the jailer. */
struct sandbox_hidden_mounts {
    struct sandbox_mount mounts[POLICY_PATHS_MAX];
    char dst[POLICY_PATHS_MAX][POLICY_TARGET_TEXT + 1];
    size_t n;
};

static int sandbox_source_open_hidden(const struct sandbox_source *s, struct sandbox_hidden_mounts *h, struct err *err)
{
    for (size_t i = 0; i < s->spec->nhidden_paths; i++) {
        int fd;

        if (hide_open(s->supply->hidden_dir, NULL, s->spec->hidden_paths[i], h->dst[h->n], &fd, err) < 0)
            return -1;
        if (fd >= 0) {
            h->mounts[h->n] = (struct sandbox_mount){ SANDBOX_MOUNT_BIND_RO, fd, h->dst[h->n] };
            h->n++;
        }
    }
    return 0;
}

static void sandbox_source_close_hidden(struct sandbox_hidden_mounts *h)
{
    while (h->n > 0)
        close(h->mounts[--h->n].fd);
}

static int sandbox_source_make(struct sandbox_source *s, struct err *err)
{
    struct sandbox_hidden_mounts h;
    struct bound_secrets bound = { 0 };
    struct sandbox_spec spec;
    int rc;

    h.n = 0; /* the arrays are large and stay unset */
    rc = sandbox_source_open_hidden(s, &h, err);
    if (rc == 0)
        rc = sandbox_source_bind_secrets(s, &spec, &bound, err);
    if (rc == 0) {
        spec.mounts = h.mounts;
        spec.nmounts = h.n;
        spec.owner_uid = h.n ? geteuid() : 0;
        spec.owner_gid = h.n ? getegid() : 0;
        rc = sandbox_handle_new(s->supply->engine, &spec, s->ops, s->arg, s->handle, err);
    }
    sandbox_source_close_hidden(&h);
    bound_secrets_wipe(&bound);
    if (rc == 0 && s->state != SANDBOX_SOURCE_MISSED)
        sandbox_source_set_state(s, SANDBOX_SOURCE_NEW);
    return rc;
}

/* --- a member of a pool --- */

void sandbox_source_take(struct sandbox_source *s, const char *borrower)
{
    struct sandbox_spec spec;

    if (s->spec->nhidden_paths)
        return;
    sandbox_source_fill_spec(s, &spec);
    s->began_ns = ev_now(s->supply->ev);
    *s->handle = pools_lend(s->supply->pools, &spec, borrower ? borrower : "", &s->loan);
    sandbox_source_set_state(s, *s->handle ? SANDBOX_SOURCE_CLAIMING : SANDBOX_SOURCE_MISSED);
}

int sandbox_source_start(struct sandbox_source *s, struct err *err)
{
    struct bound_secrets bound = { 0 };
    struct sandbox_spec spec;

    if (s->state != SANDBOX_SOURCE_CLAIMING)
        return sandbox_source_make(s, err);
    int rc = sandbox_source_bind_secrets(s, &spec, &bound, err);
    if (rc == 0)
        rc = sandbox_handle_claim(*s->handle, &spec, s->ops, s->arg, err);
    bound_secrets_wipe(&bound);
    if (rc == 0)
        return 0;
    if (sandbox_source_member_died(s, err))
        return sandbox_source_replace(s, err);
    sandbox_handle_free(take_ptr(s->handle)); /* it still reports to the pool, which has given it away */
    return -1;
}

bool sandbox_source_member_died(const struct sandbox_source *s, const struct err *err)
{
    return s->state == SANDBOX_SOURCE_CLAIMING && err->id == ERR_LOST;
}

int sandbox_source_replace(struct sandbox_source *s, struct err *err)
{
    sandbox_source_finish(s, false);
    sandbox_handle_free(take_ptr(s->handle));
    s->loan = (struct pool_loan){ 0 };
    return sandbox_source_make(s, err);
}

void sandbox_source_finish(struct sandbox_source *s, bool ready)
{
    struct sandbox_spec spec;

    if (!sandbox_source_is_pending(s))
        return;
    sandbox_source_set_state(s, !ready                                ? SANDBOX_SOURCE_FAILED
                                : s->state == SANDBOX_SOURCE_CLAIMING ? SANDBOX_SOURCE_CLAIMED
                                                                      : SANDBOX_SOURCE_NEW);
    sandbox_source_fill_spec(s, &spec);
    pools_claim_finished(s->supply->pools, &spec, ready ? ev_now(s->supply->ev) - s->began_ns + 1 : 0);
}

bool sandbox_source_is_pending(const struct sandbox_source *s)
{
    return s->state == SANDBOX_SOURCE_MISSED || s->state == SANDBOX_SOURCE_CLAIMING;
}

bool sandbox_source_is_member(const struct sandbox_source *s)
{
    return s->state == SANDBOX_SOURCE_CLAIMING || s->state == SANDBOX_SOURCE_CLAIMED;
}

bool sandbox_source_accepts_return(const struct sandbox_source *s)
{
    return pools_accepts_return(s->supply->pools, &s->loan);
}

bool sandbox_source_return(struct sandbox_source *s, struct pool_return r)
{
    struct sandbox_spec spec;

    sandbox_source_fill_spec(s, &spec);
    r.claimed_spec = &spec;
    if (!pools_return(s->supply->pools, *s->handle, &s->loan, &r))
        return false;
    *s->handle = NULL;
    return true;
}
