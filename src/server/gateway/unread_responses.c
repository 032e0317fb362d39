/* Responses of executions that clients have not read yet. An execution is complete when it is
 * answered, and its executor slot goes to the next one. Its response can be large, and a client
 * that reads slowly or not at all keeps it in memory. A tenant with 64 MiB unread cannot start
 * executions until some of it is read. The bytes are counted per tenant, so other tenants are
 * unaffected. A tenant without unread bytes has no entry. */
#include "server/gateway/unread_responses.h"

#include "server/gateway/gateway_internal.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#define UNREAD_BYTES_MAX (64 * MIB)

struct unread_quota {
    struct unread_quota *next;
    char owner[STORE_OWNER_MAX + 1];
    uint64_t bytes;
};

struct unread_response {
    struct gateway *gateway;
    struct unread_quota *quota;
    uint64_t bytes;
};

static struct unread_quota *unread_quota_find(const struct gateway *gateway, const char *owner)
{
    struct unread_quota *u = gateway->unread_quotas;

    while (u && !str_eq(u->owner, owner))
        u = u->next;
    return u;
}

int unread_responses_check(const struct gateway *gateway, const char *owner, struct err *err)
{
    const struct unread_quota *u = unread_quota_find(gateway, owner);

    if (!u || u->bytes < UNREAD_BYTES_MAX)
        return 0;
    return err_set(err, ERR_EXECUTOR_FULL,
                   "%llu MiB of responses are unread; read them before you start more executions", u->bytes / MIB);
}

static void unread_response_free(void *p)
{
    auto_free struct unread_response *l = p;
    l->quota->bytes -= l->bytes;
    if (l->quota->bytes > 0)
        return;
    list_remove(&l->gateway->unread_quotas, l->quota);
    free(l->quota);
}

void unread_responses_add(struct http_req *req, struct gateway *gateway, const char *owner, uint64_t bytes)
{
    struct unread_response *l = mem_new(struct unread_response);
    struct unread_quota *u = unread_quota_find(gateway, owner);

    if (!u) {
        u = mem_new(struct unread_quota);
        (void)str_copy(u->owner, sizeof(u->owner), owner);
        u->next = gateway->unread_quotas;
        gateway->unread_quotas = u;
    }
    u->bytes += bytes;
    *l = (struct unread_response){ gateway, u, bytes };
    http_free_with_request(req, l, unread_response_free);
}
