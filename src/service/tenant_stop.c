/* Ends the live work of a tenant that is suspended. */
#include "service/service_internal.h"

#include "core/base/mem.h"

void sandbox_end_suspended(struct sandbox *sb)
{
    struct err why;

    err_set(&why, ERR_TENANT_SUSPENDED, "its tenant, %s, was suspended or removed", sb->quota->tenant);
    sandbox_end(sb, ENDED_KILLED, &why);
}

/* Sandboxes that are still to be adopted are ended at their adoption. */
void tenant_stop_suspended(void *arg, const struct tenant_quota *q)
{
    struct manager *m = arg;
    struct err why;
    size_t n = 0;
    struct sandbox **all = mem_new_array(struct sandbox *, m->nsandboxes + 1);

    for (size_t i = 0; i < SANDBOX_BUCKETS; i++)
        for (struct sandbox *sb = m->sandboxes[i]; sb; sb = sb->next)
            if (sb->quota == q && sb->state != SANDBOX_STATE_LOADED)
                all[n++] = sb;
    for (size_t i = 0; i < n; i++) /* ending a sandbox may free it, but no other */
        sandbox_end_suspended(all[i]);
    free(all);
    err_set(&why, ERR_TENANT_SUSPENDED, "the tenant %s was suspended or removed", q->tenant);
    ephemeral_sandboxes_stop(m, q->tenant, ENDED_KILLED, &why);
    if (m->pools)
        pools_drop_owner(m->pools, q->tenant);
}
