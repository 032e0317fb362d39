/* The gateway's questions to the service, answered by the manager. */
#include "server/api/api.h"

#include "core/base/str.h"
#include "service/context.h"
#include "service/tenant_quotas.h"

static bool service_hook_tenant_is_suspended(void *arg, const char *tenant)
{
    return tenant_quotas_get(manager_quotas(arg), tenant)->is_suspended;
}

static bool service_hook_sandbox_is_live(void *arg, const char *sandbox)
{
    return manager_sandbox_is_live(arg, STORE_ANY_OWNER, sandbox);
}

static const char *service_hook_sandbox_owner(void *arg, const char *sandbox)
{
    return manager_sandbox_owner(arg, sandbox);
}

static int service_hook_find_context(void *arg, const char *owner, const char *sandbox, const char *context,
                                     bool *ret_starting, struct err *err)
{
    struct context_info all[CONTEXTS_LISTED_MAX];
    size_t n = 0, i = 0;

    if (manager_contexts(arg, owner, sandbox, all, &n, err) < 0)
        return -1;
    while (i < n && !str_eq(all[i].id, context))
        i++;
    if (i == n)
        return err_set(err, ERR_MISSING, "there is no such context");
    *ret_starting = all[i].state == CONTEXT_STARTING;
    return 0;
}

static void service_hook_flush_acknowledged_ends(void *arg)
{
    manager_flush_acknowledged_ends(arg);
}

struct gateway_hooks api_service_hooks(struct manager *manager)
{
    return (struct gateway_hooks){
        .tenant_is_suspended = service_hook_tenant_is_suspended,
        .sandbox_is_live = service_hook_sandbox_is_live,
        .sandbox_owner = service_hook_sandbox_owner,
        .find_context = service_hook_find_context,
        .flush_acknowledged_ends = service_hook_flush_acknowledged_ends,
        .arg = manager,
    };
}
