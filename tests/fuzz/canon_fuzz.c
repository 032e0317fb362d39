/* The canonical form of a policy: cove-policy sends it to cove through a pipe. The same user
 * runs both programs, but the text decides about walls, so nothing may be read that was not
 * written. */
#include "policy/policy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct policy p;
    struct operator_limits f;
    struct err err = { 0 };
    struct buf again = { 0 };

    if (canon_parse((const char *)data, size, &p, &f, &err) < 0) {
        if (err.id == ERR_NONE || !err.msg[0])
            abort();
        return 0;
    }
    canon_write(&p, &f, &again);
    if (again.len != size || memcmp(again.data, data, size) != 0)
        abort(); /* each policy has exactly one form */
    for (unsigned i = 0; i < LIMIT_COUNT; i++)
        if (p.limits.v[i] < limit_info((enum limit)i)->min || p.limits.v[i] > limit_info((enum limit)i)->max)
            abort();
    for (unsigned nr = 0; nr < 64 * FILTER_DENY_WORDS; nr++)
        if ((policy_denies(p.deny, nr) || policy_denies(f.deny, nr)) && syscall_is_needed(nr))
            abort();
    if ((p.workspace == POLICY_MEMORY) != !p.workspace_dir || p.npaths > POLICY_PATHS_MAX || p.grants & ~GRANTS_ALL)
        abort();
    buf_done(&again);
    policy_done(&p);
    operator_limits_done(&f);
    return 0;
}
