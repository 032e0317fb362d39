/* Which sandboxes that were prepared for one spec serve another. */
#include "sandbox/engine_internal.h"

#include "core/base/hash.h"
#include "core/base/str.h"
#include "sandbox/drivers.h"

bool sandbox_spec_supports_zygote(const struct sandbox_spec *spec)
{
    return drivers_caps(spec->driver)->zygote;
}

/* A driver without zygotes makes the same sandboxes for a spec with and without one. */
struct sandbox_kind sandbox_kind_of_spec(const struct sandbox_spec *spec)
{
    struct sandbox_kind k = { .driver = spec->driver,
                              .filter = { .profile = spec->profile, .grants = spec->grants },
                              .egress = spec->network.mode != NETWORK_NONE };

    if (spec->zygote && sandbox_spec_supports_zygote(spec)) {
        (void)str_copy(k.language, sizeof(k.language), spec->zygote->language);
        k.preload = hash_bytes(HASH_INIT, spec->zygote->preload, strlen(spec->zygote->preload));
    }
    memcpy(k.filter.deny, spec->deny, sizeof(k.filter.deny));
    return k;
}

bool sandbox_spec_same_kind(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
    struct sandbox_kind ka = sandbox_kind_of_spec(a), kb = sandbox_kind_of_spec(b);

    return sandbox_kind_equal(&ka, &kb);
}

struct sandbox_spec sandbox_spec_unclaimed(const struct sandbox_spec *spec)
{
    struct sandbox_spec s = *spec;

    s.id = s.policy = s.tenant = NULL;
    s.network.rules = NULL;
    s.secrets = NULL;
    s.nsecrets = 0;
    s.share = (struct egress_share){ 0 };
    s.require_all_walls = false;
    s.require_enforced = 0;
    s.env = NULL;
    s.mounts = NULL;
    s.nmounts = 0;
    s.owner_uid = 0;
    s.owner_gid = 0;
    return s;
}

bool sandbox_limits_equal(const struct limits *a, const struct limits *b)
{
    static const uint64_t ours = 1ull << LIMIT_OUTPUT | 1ull << LIMIT_WALL | 1ull << LIMIT_LIFETIME |
                                 1ull << LIMIT_IDLE;

    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (a->v[i] != b->v[i] && !(ours >> i & 1))
            return false;
    return true;
}

/* Equal, or the claim can make them equal. */
static bool sandbox_limits_fit_claim(const struct limits *made, const struct limits *want)
{
    static const enum limit late[] = { LIMIT_MEMORY, LIMIT_SWAP, LIMIT_CPU, LIMIT_PIDS };
    struct limits changed = *made;

    for (size_t i = 0; i < ARRAY_LEN(late); i++)
        changed.v[late[i]] = want->v[late[i]];
    return want->v[LIMIT_PIDS] <= made->v[LIMIT_PIDS] && sandbox_limits_equal(&changed, want);
}

static const char *sandbox_spec_hostname(const struct sandbox_spec *spec)
{
    return spec->hostname ? spec->hostname : "cove";
}

/* All levels that can be prepared raise the same walls today. A request still gets only a
 * sandbox of its own level, so that this stays correct when the levels differ. */
static bool sandbox_spec_same_walls(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
    return a->level == b->level && a->network.mode == b->network.mode && a->nmounts == 0 && b->nmounts == 0 &&
           sandbox_spec_same_kind(a, b) && str_eq(sandbox_spec_hostname(a), sandbox_spec_hostname(b));
}

bool sandbox_spec_equal(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
    return sandbox_spec_same_walls(a, b) && sandbox_limits_equal(&a->limits, &b->limits);
}

bool sandbox_spec_fits_claim(const struct sandbox_spec *made, const struct sandbox_spec *want)
{
    return sandbox_spec_same_walls(made, want) && sandbox_limits_fit_claim(&made->limits, &want->limits);
}
