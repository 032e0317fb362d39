/* Interpreters that the jailer's zygote of a kind forks into its sandboxes. */
#include "sandbox/jailed/jailed_internal.h"

#include "core/base/str.h"

static struct jailed_request *jailed_send_zygote(struct jailed_link *l, const struct jail_zygote *m, void *owner,
                                                 struct err *err)
{
    PAYLOAD(payload);
    int len = jail_zygote_encode(m, payload, err);

    return len < 0 ? NULL : jailed_send(l, FRAME_J_ZYGOTE, payload, (uint32_t)len, NULL, 0, jailed_on_done, owner);
}

struct driver_request *jailed_start_zygote(struct driver_link *l, const struct sandbox_kind *kind, const char *preload,
                                           driver_done_fn *fn, void *owner, struct err *err)
{
    struct jail_zygote m = { "", "", "" };

    jailed_template_name(kind, m.template);
    memcpy(m.language, kind->language, sizeof(m.language));
    if (!str_copy(m.preload, sizeof(m.preload), preload)) {
        err_set(err, ERR_LIMIT, "preload: the list is longer than %zu bytes", sizeof(m.preload) - 1);
        return NULL;
    }
    jailed_request_template(jailed_link(l), kind);
    struct jailed_request *a = jailed_send_zygote(jailed_link(l), &m, owner, err);
    if (!a)
        return NULL;
    a->base.on.done = fn;
    return &a->base;
}

void jailed_stop_zygote(struct driver_link *l, const struct sandbox_kind *kind)
{
    struct jail_zygote m = { "", "", "" };
    struct err err;

    jailed_template_name(kind, m.template);
    if (!l->lost)
        (void)jailed_send_zygote(jailed_link(l), &m, NULL, &err);
}

static void jailed_on_joined(struct jailed_link *l UNUSED, struct jailed_request *a, const struct jailed_reply *reply,
                             const struct err *err)
{
    if (a->base.on.joined)
        a->base.on.joined(&a->base, reply ? reply->fds : NULL, reply ? reply->nfds : 0, err);
}

struct driver_request *jailed_join(struct driver_link *l, const char *id, driver_joined_fn *fn, void *owner)
{
    struct jailed_request *a = jailed_send_id(jailed_link(l), FRAME_J_JOIN, id, jailed_on_joined, owner);

    a->base.on.joined = fn;
    return &a->base;
}
