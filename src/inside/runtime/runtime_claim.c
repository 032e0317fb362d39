/* Building a ruleset takes longer than all other steps, and file rules are nearly always the same:
 * the host sends the expected rules before a request waits. A claim with other rules builds its own
 * ruleset.
 *
 * The other walls were measured at the start, when no request waited: none of them can change
 * later, and a Landlock rule may hide the files that show them. If any part of the claim fails,
 * nothing of it is kept, so the host may try again or give up; user code cannot start before a
 * successful claim. */
#include "inside/runtime/runtime_claim.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "inside/runtime/env.h"
#include "core/base/mutate.h"
#include "inside/runtime/landlock.h"

#include <fcntl.h>

/* Fresh bytes from the host for a Linux kernel that may have been copied with the sandbox. The
 * kernel mixes them in without trusting them. Without the device nothing is lost. */
static void runtime_claim_add_entropy(const uint8_t entropy[32])
{
    auto_fd int fd = open("/dev/urandom", O_WRONLY | O_CLOEXEC);

    if (fd >= 0)
        fd_write_all(fd, entropy, 32);
}

static void runtime_claim_drop_preloaded(struct runtime *rt)
{
    fd_close(&rt->preloaded.ruleset);
    free(take_ptr(&rt->preloaded.rules));
    free(take_ptr(&rt->preloaded.strings));
}

/* No user code has run since the preload, and nothing is mounted later, so the paths still resolve
 * to the same files. */
static bool runtime_claim_rules_match_preloaded(const struct runtime *rt, const struct rt_claim *claim)
{
    bool same = rt->preloaded.ruleset >= 0 && rt->preloaded.nrules == claim->nrules;

    for (uint32_t i = 0; same && i < claim->nrules; i++)
        same = rt->preloaded.rules[i].access == claim->rules[i].access &&
               str_eq(rt->preloaded.rules[i].path, claim->rules[i].path);
    return same;
}

static int runtime_claim_restrict_files(struct runtime *rt, const struct rt_claim *claim, int abi, struct err *err)
{
    auto_fd int ruleset = runtime_claim_rules_match_preloaded(rt, claim) ? take_fd(&rt->preloaded.ruleset) : -1;

    if ((ruleset < 0 && landlock_build(abi, claim->rules, claim->nrules, &ruleset, err) < 0) ||
        landlock_restrict(ruleset, err) < 0)
        return -1;
    rt->ruleset = take_fd(&ruleset);
    return 0;
}

static int runtime_claim_raise_walls(struct runtime *rt, const struct rt_claim *claim, struct rt_claimed *walls,
                                     struct err *err)
{
    walls->walls = rt->measured_walls;
    walls->landlock_abi = (uint32_t)landlock_abi();
    if (walls->landlock_abi < claim->landlock_min)
        return err_set(err, ERR_NO_LANDLOCK, "Landlock ABI is %u, but at least %u is required", walls->landlock_abi,
                       claim->landlock_min);
    if (claim->walls & ~RT_WALL_LANDLOCK & ~rt->measured_walls)
        return err_set(err, ERR_WALL_MISSING, "walls %#x are required, but %#x are missing", claim->walls,
                       claim->walls & ~RT_WALL_LANDLOCK & ~rt->measured_walls);
    runtime_claim_add_entropy(claim->entropy);
    if (walls->landlock_abi == 0)
        return 0;
    if (!wall_is_mutated("landlock") && runtime_claim_restrict_files(rt, claim, (int)walls->landlock_abi, err) < 0)
        return -1;
    walls->walls |= RT_WALL_LANDLOCK;
    return 0;
}

int runtime_claim_open(struct runtime *rt, const struct frame *f, struct err *err)
{
    struct rt_claim claim;
    auto_free void *strings = NULL;
    struct rt_claimed walls = { 0 };

    if (rt->claimed || rt->resetting)
        return err_set(err, ERR_EXISTS, "this sandbox is already claimed");
    if (rt_claim_decode(f, &claim, &strings, err) < 0 || env_check(claim.env, err) < 0 ||
        runtime_claim_raise_walls(rt, &claim, &walls, err) < 0)
        return -1;
    rt->env = claim.env;
    rt->env_strings = take_ptr(&strings);
    rt->claimed_walls = walls;
    rt->claimed = true;
    runtime_claim_drop_preloaded(rt);
    return 0;
}

void runtime_claim_forget(struct runtime *rt)
{
    rt->claimed = false;
    rt->env = NULL;
    free(take_ptr(&rt->env_strings));
    fd_close(&rt->ruleset);
    rt->claimed_walls = (struct rt_claimed){ 0 };
}

/* A preload failure is not reported; the claim reports it if it needs the rules. */
int runtime_claim_preload_rules(struct runtime *rt, const struct frame *f, struct err *err)
{
    struct rt_claim claim;
    auto_free void *strings = NULL;
    int ruleset, abi = landlock_abi();

    if (rt->claimed)
        return err_set(err, ERR_EXISTS, "this sandbox is already claimed");
    if (rt_claim_decode(f, &claim, &strings, err) < 0)
        return -1;
    runtime_claim_drop_preloaded(rt);
    if (abi == 0 || landlock_build(abi, claim.rules, claim.nrules, &ruleset, NULL) < 0)
        return 0;
    rt->preloaded.ruleset = ruleset;
    rt->preloaded.rules = mem_copy(claim.rules, claim.nrules * sizeof(claim.rules[0]));
    rt->preloaded.nrules = claim.nrules;
    rt->preloaded.strings = take_ptr(&strings);
    return 0;
}
