/* Sandboxes that are created for a call: the one of a session, at the first call that needs it, and
 * those of the tool create_sandbox.
 *
 * A job outlives its call, because a creation cannot be stopped: a sandbox that no call awaits any
 * more is deleted when it is ready. */
#include "server/mcp/mcp_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/custom_policy.h"
#include "service/spec.h"
#include "service/template_check.h"

struct mcp_sandbox_job {
    struct mcp *mcp;
    struct mcp_sandbox_job *next, **link;
    struct mcp_session *session; /* whose sandbox it becomes; NULL: none, or it ended */
    struct principal principal;
    char template[STORE_NAME_MAX + 1];
    char name[SPEC_NAME_MAX + 1];
    uint64_t lifetime_ms; /* 0: the template's */
    struct spec spec;
    char address[64], request[80]; /* of the call, for the record */
};

/* --- deletion --- */

static void mcp_on_deletions_done(void *arg)
{
    struct mcp *m = arg;
    void (*done)(void *) = take_ptr(&m->on_deleted);

    done(m->on_deleted_arg);
}

void mcp_deletions_check(struct mcp *m)
{
    if (m->on_deleted && m->deletions == 0 && !m->sandbox_jobs)
        ev_defer(m->settings.ev, &m->on_deleted_defer, mcp_on_deletions_done, m);
}

static void mcp_on_sandbox_deleted(void *arg, const struct err *err UNUSED, const struct store_sandbox *row UNUSED)
{
    struct mcp *m = arg;

    m->deletions--;
    mcp_deletions_check(m);
}

static void mcp_delete_sandbox(struct mcp *m, const char *owner, const char *id)
{
    m->deletions++;
    manager_delete(m->settings.manager, owner, id, mcp_on_sandbox_deleted, m);
}

/* --- jobs --- */

static void mcp_sandbox_job_free(struct mcp_sandbox_job *j)
{
    linked_remove(j);
    if (j->session)
        j->session->sandbox_job = NULL;
    spec_done(&j->spec);
    free(j);
}

static void mcp_on_sandbox_changed(void *arg UNUSED, const struct err *err UNUSED,
                                   const struct store_sandbox *row UNUSED)
{
}

bool mcp_session_sandbox_ends_soon(const struct mcp_session *s)
{
    return s->sandbox[0] && !s->borrows_sandbox && s->sandbox_expires_ms &&
           s->sandbox_expires_ms <= clock_real_ms() + s->mcp->settings.idle_ms / 2;
}

void mcp_session_extend_sandbox(struct mcp_session *s)
{
    uint64_t now = clock_real_ms(), idle = s->mcp->settings.idle_ms;
    struct sandbox_update update = { .lifetime_ms = idle };
    struct err err = { 0 };

    if (!mcp_session_sandbox_ends_soon(s) ||
        custom_policy_check_operator_limit(s->mcp->settings.operator_limits, LIMIT_LIFETIME, "lifetimeMs", idle, &err) <
            0)
        return;
    s->sandbox_expires_ms = now + idle;
    manager_update(s->mcp->settings.manager, s->owner, s->sandbox, &update, mcp_on_sandbox_changed, NULL);
}

static void mcp_sandbox_job_report(struct mcp_sandbox_job *j, const struct store_sandbox *row, const struct err *err)
{
    struct mcp *m = j->mcp;
    struct mcp_server_call *c = m->calls;
    bool is_awaited = j->session != NULL;

    if (j->session)
        j->session->sandbox_job = NULL;
    j->session = NULL;
    while (c) {
        bool waits = c->sandbox_job == j;

        if (waits) {
            c->sandbox_job = NULL;
            c->on_cancel = NULL;
            is_awaited = true;
            c->sandbox_fn(c, row ? row->id : NULL, row, err);
        }
        c = waits ? m->calls : c->next;
    }
    if (!is_awaited && row)
        mcp_delete_sandbox(m, row->owner, row->id);
    mcp_sandbox_job_free(j);
    mcp_deletions_check(m);
}

static void mcp_sandbox_job_on_created(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct mcp_sandbox_job *j = arg;
    struct audit_pair target = { "sandbox", row ? row->id : "" };

    if (row)
        (void)audit_trail_record_action(j->mcp->settings.gateway, &j->principal, j->address, j->request,
                                        "sandbox.create", "success", &target, 1, NULL);
    if (row && j->session) {
        (void)str_copy(j->session->sandbox, sizeof(j->session->sandbox), row->id);
        j->session->sandbox_expires_ms = row->expires_ms;
        mcp_session_extend_sandbox(j->session);
    }
    mcp_sandbox_job_report(j, row, err);
}

/* A member of a pool has an id of its own. */
static void mcp_sandbox_job_on_named(void *arg UNUSED, const char *id UNUSED)
{
}

static int mcp_sandbox_job_finish_spec(struct mcp_sandbox_job *j, struct err *err)
{
    const struct operator_limits *limits = j->mcp->settings.operator_limits;

    if (j->lifetime_ms) {
        if (custom_policy_check_operator_limit(limits, LIMIT_LIFETIME, "lifetimeMs", j->lifetime_ms, err) < 0)
            return -1;
        j->spec.limits.v[LIMIT_LIFETIME] = j->lifetime_ms;
        j->spec.explicit_limits |= UINT64_C(1) << LIMIT_LIFETIME;
    }
    if (j->name[0] && spec_check_name(j->name, err) < 0)
        return -1;
    memcpy(j->spec.name, j->name, sizeof(j->name));
    (void)str_copy(j->spec.created_by, sizeof(j->spec.created_by), principal_id(&j->principal));
    return custom_policy_apply_operator_limits(&j->spec, limits, err) < 0 ? -1 : spec_finish(&j->spec, err);
}

static void mcp_sandbox_job_create(struct mcp_sandbox_job *j)
{
    struct err err = { 0 };

    if (mcp_sandbox_job_finish_spec(j, &err) < 0)
        mcp_sandbox_job_report(j, NULL, &err);
    else
        manager_create(j->mcp->settings.manager, j->principal.owner, NULL, &j->spec,
                       j->template[0] ? j->template : NULL, mcp_sandbox_job_on_named, mcp_sandbox_job_on_created, j);
}

static void mcp_sandbox_job_on_template_checked(void *arg, const struct err *err, const char *details UNUSED)
{
    if (err)
        mcp_sandbox_job_report(arg, NULL, err);
    else
        mcp_sandbox_job_create(arg);
}

static void mcp_sandbox_job_on_template(void *arg, const struct err *err, const struct store_template *row)
{
    struct mcp_sandbox_job *j = arg;
    struct mcp_settings *set = &j->mcp->settings;
    struct err why = { 0 };

    if (spec_read_template(&j->spec, j->template, err, row, &why) < 0)
        mcp_sandbox_job_report(j, NULL, &why);
    else
        template_check_modules(manager_host_modules(set->manager), j->template, &j->spec, ev_now(set->ev),
                               mcp_sandbox_job_on_template_checked, j);
}

static void mcp_sandbox_wait_cancel(struct mcp_server_call *c)
{
    c->sandbox_job = NULL;
}

static void mcp_sandbox_wait(struct mcp_server_call *c, struct mcp_sandbox_job *j, mcp_sandbox_fn *fn)
{
    c->sandbox_job = j;
    c->sandbox_fn = fn;
    if (!c->on_cancel)
        c->on_cancel = mcp_sandbox_wait_cancel;
}

static int mcp_sandbox_check_rights(const struct mcp_server_call *c, struct err *err)
{
    struct ratelimit_answer rate;
    const struct mcp_settings *set = &c->mcp->settings;

    if (principal_require(&c->principal, SCOPE_BIT(SANDBOXES_WRITE), err) < 0)
        return -1;
    if (!auth_rate_take(set->auth, &c->principal, AUTH_CLASS_CREATE, ev_now(set->ev), &rate))
        return err_set(err, ERR_RATE_LIMITED, "too many sandboxes created with this key; try again later");
    return 0;
}

void mcp_create_sandbox(struct mcp_server_call *c, const struct mcp_sandbox_spec *spec, struct mcp_session *session,
                        mcp_sandbox_fn *fn)
{
    struct mcp_sandbox_job *j;
    struct err err = { 0 };

    if (mcp_sandbox_check_rights(c, &err) < 0) {
        fn(c, NULL, NULL, &err);
        return;
    }
    j = mem_new(struct mcp_sandbox_job);
    j->mcp = c->mcp;
    j->principal = c->principal;
    j->session = session;
    if (session)
        session->sandbox_job = j;
    j->lifetime_ms = spec->lifetime_ms;
    (void)str_copy(j->template, sizeof(j->template), spec->template ? spec->template : "");
    (void)str_copy(j->name, sizeof(j->name), spec->name ? spec->name : "");
    if (c->req) {
        (void)str_copy(j->address, sizeof(j->address), http_peer(c->req)->is_unix ? "local" : http_peer(c->req)->addr);
        (void)str_copy(j->request, sizeof(j->request), http_server_assigned_id(c->req));
    }
    spec_init(&j->spec);
    linked_push(&c->mcp->sandbox_jobs, j);
    mcp_sandbox_wait(c, j, fn);
    if (j->template[0])
        template_cache_get(c->mcp->template_cache, j->template, ev_now(c->mcp->settings.ev),
                           mcp_sandbox_job_on_template, j);
    else
        mcp_sandbox_job_create(j);
}

/* --- the sandbox of a session --- */

void mcp_session_sandbox(struct mcp_server_call *c, mcp_sandbox_fn *fn)
{
    struct mcp_session *s = c->session;
    const char *template = s->template[0] ? s->template : c->mcp->settings.template;
    struct mcp_sandbox_spec spec = { .template = *template ? template : NULL };

    if (s->sandbox[0]) {
        mcp_session_extend_sandbox(s);
        fn(c, s->sandbox, NULL, NULL);
    } else if (s->sandbox_job) {
        mcp_sandbox_wait(c, s->sandbox_job, fn);
    } else {
        mcp_create_sandbox(c, &spec, s, fn);
    }
}

void mcp_session_sandbox_lost(struct mcp_session *s, const char *sandbox)
{
    if (str_eq(s->sandbox, sandbox) && !s->borrows_sandbox)
        s->sandbox[0] = '\0';
}

void mcp_session_delete_sandbox(struct mcp_session *s)
{
    if (s->sandbox_job)
        s->sandbox_job->session = NULL;
    s->sandbox_job = NULL;
    if (s->sandbox[0] && !s->borrows_sandbox)
        mcp_delete_sandbox(s->mcp, s->owner, s->sandbox);
    s->sandbox[0] = '\0';
}

/* The manager answers its calls before it is freed, so no job is left but those of a server that
 * never ran its loop again. */
void mcp_sandbox_jobs_free(struct mcp *m)
{
    struct mcp_sandbox_job *next;

    for (struct mcp_sandbox_job *j = m->sandbox_jobs; j; j = next) {
        next = j->next;
        mcp_sandbox_job_free(j);
    }
}
