/* Subscriptions to a sandbox: WebSockets that show its state and close when it ends. */
#include "service/sandbox_internal.h"

#include "core/base/list.h"
#include "core/base/mem.h"

struct sandbox_subscription *sandbox_subscribe(struct manager *m, const char *owner, const char *id,
                                               sandbox_subscription_fn *fn, void *arg, struct err *err)
{
    const struct sandbox_services *s = manager_sandbox_services(m);
    bool loaded = recovery_is_loaded(s->recovery);
    struct sandbox *sb = loaded ? registry_find(s->registry, owner, id) : NULL;

    if (!sb || sb->state == SANDBOX_STATE_LOADED || sb->state == SANDBOX_STATE_CREATING) {
        if (!loaded || sb)
            err_set(err, ERR_BUSY, "the sandbox is being created or recovered; try again");
        else
            err_set(err, ERR_MISSING, "there is no such sandbox");
        return NULL;
    }
    if (sb->state == SANDBOX_STATE_ENDING) {
        sandbox_ended_error(sb, err);
        return NULL;
    }
    struct sandbox_subscription *a = mem_new(struct sandbox_subscription);
    a->sandbox = sb;
    a->fn = fn;
    a->arg = arg;
    a->next = sb->subscriptions;
    sb->subscriptions = a;
    return a;
}

void sandbox_subscription_free(struct sandbox_subscription *a)
{
    if (a && a->sandbox) {
        list_remove(&a->sandbox->subscriptions, a);
    }
    free(a);
}

enum store_sandbox_state sandbox_subscription_state(const struct sandbox_subscription *a)
{
    return !a->sandbox || a->sandbox->state == SANDBOX_STATE_ENDING ? STORE_SANDBOX_ENDED
           : a->sandbox->state == SANDBOX_STATE_PAUSED              ? STORE_SANDBOX_PAUSED
                                                                    : STORE_SANDBOX_RUNNING;
}

const struct spec *sandbox_subscription_spec(const struct sandbox_subscription *a)
{
    return a->sandbox ? &a->sandbox->spec : NULL;
}

void sandbox_notify_subscribers(struct sandbox *sb)
{
    struct sandbox_subscription *next;

    for (struct sandbox_subscription *a = sb->subscriptions; a; a = next) {
        next = a->next; /* fn may free this subscription, but no other */
        a->fn(a->arg, NULL);
    }
}

void sandbox_notify_end(struct sandbox *sb)
{
    struct err why;

    sandbox_ended_error(sb, &why);
    while (sb->subscriptions) {
        struct sandbox_subscription *a = sb->subscriptions;

        sb->subscriptions = a->next;
        a->sandbox = NULL;
        a->fn(a->arg, &why);
    }
}
