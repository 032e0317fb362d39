/* The record of a request, made in one place for all routes: the gate begins it, the answer completes it.
 *
 * What changes something is recorded before whoever asked hears of it: the answer is held until the record is in the
 * file. Requests that make something with an id of their own are recorded twice: as `accepted` when the work begins,
 * so that the writing costs no time of the answer, and with their outcome when it is known; that record is made behind
 * the answer, and before any other request is looked at. What was refused changed
 * nothing: its record follows when there is time, and a flood of them becomes a number (flood.h).
 *
 * An operator who acts on a sandbox of another tenant has two records: their own, and one before it for that tenant,
 * which says who and what, and neither from where nor with which details.
 *
 * Secrets do not come here. Keys are told by their ids, queries not at all, and what is run by hash and length unless
 * the operator wants the text. */
#include "api/inside.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#include <stdio.h>

#define TEXT_MAX 4096u         /* of a name or path */
#define CONTENT_MAX (64 * KIB) /* of what is run, where the operator wants it */
#define DETAILS_MAX (256 * KIB)

static const char *const kinds[] = { [PRINCIPAL_LOCAL] = "local",   [PRINCIPAL_KEY] = "key",
                                     [PRINCIPAL_JWT] = "jwt",       [PRINCIPAL_SANDBOX_TOKEN] = "sandbox_token",
                                     [PRINCIPAL_TICKET] = "ticket", [PRINCIPAL_SIGNED] = "signed" };

static uint64_t now_ms(void)
{
    return clock_real_ns() / NS_PER_MS;
}

static struct api_request *request_of(const struct http_req *req)
{
    return http_user(req);
}

static void record_due(struct api_request *r);

static void request_free(void *arg)
{
    struct api_request *r = arg;

    record_due(r);
    *r->at = r->next;
    if (r->next)
        r->next->at = r->at;
    for (size_t i = 0; i < r->ntarget; i++)
        free(r->target_values[i]);
    for (size_t i = 0; i < r->nnames; i++)
        free(r->names[i]);
    buf_done(&r->details);
    free(r);
}

static const struct api_action *find_action(const struct api *api, const struct http_route *route)
{
    for (size_t i = 0; i < api->nactions; i++)
        if (api->actions[i].route == route)
            return &api->actions[i];
    return NULL;
}

/* --- what a handler adds --- */

void api_audit_target(const struct http_req *req, const char *name, const char *value)
{
    struct api_request *r = request_of(req);

    if (!r || !r->audit || r->ntarget == API_TARGETS_MAX)
        return;
    r->target[r->ntarget].name = name;
    r->target_values[r->ntarget] = str_dup_n(value, strnlen(value, TEXT_MAX));
    r->target[r->ntarget].value = r->target_values[r->ntarget];
    r->ntarget++;
}

static void detail_key(struct api_request *r, const char *key)
{
    buf_adds(&r->details, r->details.len ? ",\"" : "{\"");
    buf_adds(&r->details, key);
    buf_adds(&r->details, "\":");
}

static void detail_text(struct api_request *r, const char *key, const char *value, size_t len)
{
    struct jsonw w;

    if (r->details.len + len > DETAILS_MAX)
        return;
    detail_key(r, key);
    jsonw_init(&w, &r->details, 0);
    jsonw_strn(&w, value, len);
}

void api_audit_detail(const struct http_req *req, const char *key, const char *value)
{
    struct api_request *r = request_of(req);

    if (r && r->audit)
        detail_text(r, key, value, strnlen(value, TEXT_MAX));
}

void api_audit_number(const struct http_req *req, const char *key, uint64_t value)
{
    struct api_request *r = request_of(req);

    if (!r || !r->audit || r->details.len > DETAILS_MAX)
        return;
    detail_key(r, key);
    buf_addf(&r->details, "%" PRIu64, value);
}

void api_audit_content(const struct http_req *req, const char *key, const char *data, size_t len)
{
    struct api_request *r = request_of(req);
    uint8_t hash[CHAIN_HASH];
    char hex[2 * CHAIN_HASH + 1];

    if (!r || !r->audit || !data)
        return;
    if (r->content) {
        detail_text(r, key, data, min_size(len, CONTENT_MAX));
        if (len <= CONTENT_MAX)
            return;
    }
    chain_sha256(data, len, hash);
    chain_hex(hash, CHAIN_HASH, hex);
    auto_free char *sum = str_printf("%sSha256", key), *size = str_printf("%sBytes", key);
    detail_text(r, sum, hex, strlen(hex));
    api_audit_number(req, size, len);
}

void api_audit_words(const struct http_req *req, const char *key, const char *const *words)
{
    auto_buf text = { 0 };

    for (; words && *words; words++)
        buf_add(&text, *words, strlen(*words) + 1);
    if (text.len > 0)
        api_audit_content(req, key, text.data, text.len);
}

/* --- one record --- */

/* sandboxId is a sandbox, keyId a key, template a template. */
static void add_params(struct api_request *r, const struct http_route *route)
{
    for (const char *p = strchr(route->pattern, '{'); p; p = strchr(p + 1, '{')) {
        size_t n = strcspn(++p, "*}");
        char *name = str_dup_n(p, n);
        const char *value = http_param(r->req, name);

        if (n > 2 && str_eq(name + n - 2, "Id"))
            name[n - 2] = '\0';
        bool told = value && *value && r->nnames < API_TARGETS_MAX;
        if (told) {
            r->names[r->nnames++] = name;
            api_audit_target(r->req, name, value);
        } else {
            free(name);
        }
    }
    const char *path = http_query(r->req, "path");
    if (path && *path)
        api_audit_target(r->req, "path", path);
}

static const char *outcome_of(int status)
{
    return status < 400                                                                        ? "success"
           : status == 401 || status == 403 || status == 404 || status == 421 || status == 429 ? "refused"
                                                                                               : "failed";
}

static struct audit_record begin_record(struct api_request *r, const char *outcome)
{
    const struct http_peer *peer = http_peer(r->req);
    bool other_id = !str_eq(http_id(r->req), http_own_id(r->req));

    if (r->details.len && r->details.data[r->details.len - 1] != '}')
        buf_adds(&r->details, "}");
    return (struct audit_record){ .tenant = r->who.owner,
                                  .action = r->action->name,
                                  .outcome = outcome,
                                  .kind = r->known ? kinds[r->who.kind] : "anonymous",
                                  .key = r->who.key_id,
                                  .user = r->who.user,
                                  .address = peer->local ? "local" : peer->addr,
                                  .target = r->target,
                                  .ntarget = r->ntarget,
                                  .request = http_own_id(r->req),
                                  .client_request = other_id ? http_id(r->req) : NULL,
                                  .details = r->details.len ? r->details.data : NULL };
}

/* For the tenant whose sandbox it was. It comes first: who waits for the other has waited for this. */
static void tell_owner(struct audit *audit, const char *owner, const struct audit_record *of)
{
    struct audit_record rec = *of;

    if (!owner[0])
        return;
    rec.tenant = owner;
    rec.kind = "operator";
    rec.address = rec.client_request = rec.details = NULL;
    audit_append(audit, &rec, false);
}

static void find_owner(const struct api *api, const struct principal *who, const char *sandbox,
                       char ret[STORE_OWNER_MAX + 1])
{
    const char *owner = sandbox && principal_may(who, SCOPE_BIT(ADMIN)) ? manager_owner(api->set.manager, sandbox)
                                                                        : NULL;

    ret[0] = '\0';
    if (owner && !str_eq(owner, who->owner))
        (void)str_copy(ret, STORE_OWNER_MAX + 1, owner);
}

void api_record_place(struct api_request *r)
{
    find_owner(r->api, &r->who, http_param(r->req, "sandboxId"), r->guest_of);
}

void api_audit_begin(const struct http_req *req)
{
    struct api_request *r = request_of(req);

    if (!r || !r->audit || !r->action->told || r->seq)
        return;
    if (!r->named)
        add_params(r, http_route(req));
    r->named = true;
    struct audit_record rec = begin_record(r, "accepted");
    tell_owner(r->audit, r->guest_of, &rec);
    r->seq = audit_append(r->audit, &rec, false);
    buf_clear(&r->details); /* they are told; what follows is new */
}

static void on_recorded(void *arg)
{
    struct api_request *r = arg;

    http_release(r->req);
}

/* --- refusals --- */

static void fill_kind(struct flood_kind *k, const struct principal *who, bool known, const char *address,
                      const char *action, enum err_id error, int status)
{
    *k = (struct flood_kind){ .status = status };
    snprintf(k->tenant, sizeof(k->tenant), "%s", known ? who->owner : "");
    snprintf(k->kind, sizeof(k->kind), "%s", known ? kinds[who->kind] : "anonymous");
    snprintf(k->actor, sizeof(k->actor), "%s", known ? who->key_id : "");
    snprintf(k->user, sizeof(k->user), "%s", known ? who->user : "");
    snprintf(k->address, sizeof(k->address), "%s", address);
    snprintf(k->action, sizeof(k->action), "%s", action);
    snprintf(k->error, sizeof(k->error), "%s", error ? err_info(error)->code : "");
}

static void write_sum(struct api *api, const struct flood_sum *s)
{
    char at[32];
    auto_free char *details = str_printf("{\"count\":%" PRIu64 ",\"since\":\"%s\"}", s->count,
                                         clock_rfc3339(s->since_ms * NS_PER_MS, at));

    audit_append(api->set.audit,
                 &(struct audit_record){ .tenant = s->what.tenant,
                                         .action = s->what.action,
                                         .outcome = s->what.status ? outcome_of(s->what.status) : "refused",
                                         .status = s->what.status,
                                         .error = s->what.error,
                                         .kind = s->what.kind,
                                         .key = s->what.actor,
                                         .user = s->what.user,
                                         .address = s->what.address,
                                         .details = details },
                 true);
}

static void sum_up(void *arg)
{
    struct api *api = arg;
    struct flood_sum s;
    uint64_t now = ev_now(api->set.ev);

    while (flood_next(api->flood, now, false, &s))
        write_sum(api, &s);
    if (flood_due(api->flood))
        ev_timer_set(api->set.ev, &api->flood_timer, flood_due(api->flood), sum_up, api);
}

bool api_record_single(struct api *api, const struct flood_kind *k)
{
    bool yes = flood_take(api->flood, k, ev_now(api->set.ev), now_ms());

    if (!yes && !api->flood_timer.slot)
        ev_timer_set(api->set.ev, &api->flood_timer, flood_due(api->flood), sum_up, api);
    return yes;
}

static void record_refusal(struct api_request *r, int status)
{
    const struct http_peer *peer = http_peer(r->req);
    enum err_id error = http_error(r->req);
    struct flood_kind k;

    fill_kind(&k, &r->who, r->known, peer->local ? "local" : peer->addr, r->action->name, error, status);
    api_security_refusal(r->api, &k);
    if (!api_record_single(r->api, &k))
        return;
    if (!r->named)
        add_params(r, http_route(r->req));
    struct audit_record rec = begin_record(r, outcome_of(status));
    rec.status = status;
    rec.error = k.error;
    audit_append(r->audit, &rec, true);
}

/* Requests that never came to the gate: their head alone was reason enough. */
void api_record_stray(struct api *api, const struct http_done *done)
{
    const struct api_action *action = done->route ? find_action(api, done->route) : NULL;
    struct flood_kind k;

    if (!api->set.audit || done->status < 400 || (action && !action->changes && done->status != 403))
        return;
    fill_kind(&k, NULL, false, done->peer->local ? "local" : done->peer->addr, action ? action->name : "request.refuse",
              done->error, done->status);
    api_security_refusal(api, &k);
    if (!api_record_single(api, &k))
        return;
    audit_append(api->set.audit,
                 &(struct audit_record){ .action = k.action,
                                         .outcome = outcome_of(done->status),
                                         .status = done->status,
                                         .error = k.error,
                                         .kind = k.kind,
                                         .address = k.address,
                                         .request = done->own_id,
                                         .client_request = str_eq(done->id, done->own_id) ? NULL : done->id },
                 true);
}

/* --- the answer --- */

static bool interesting(const struct api_request *r, int status)
{
    return r->action->told || status == 401 || status == 403 || status == 404 || status == 429;
}

static uint64_t record_outcome(struct api_request *r)
{
    int status = http_status(r->req);
    struct audit_record rec = begin_record(r, outcome_of(status));

    rec.status = status;
    rec.error = http_error(r->req) ? err_info(http_error(r->req))->code : NULL;
    tell_owner(r->audit, r->guest_of, &rec);
    return audit_append(r->audit, &rec, r->seq != 0);
}

static void record_due(struct api_request *r)
{
    if (!r->due_at)
        return;
    *r->due_at = r->next_due;
    if (r->next_due)
        r->next_due->due_at = r->due_at;
    r->due_at = NULL;
    if (r->audit)
        record_outcome(r);
}

void api_record_settle(struct api *api)
{
    while (api->due)
        record_due(api->due);
}

static void on_settle(void *arg)
{
    api_record_settle(arg);
}

static void record_later(struct api_request *r)
{
    struct api_request **end = &r->api->due;

    while (*end)
        end = &(*end)->next_due;
    *end = r;
    r->due_at = end;
    r->next_due = NULL;
    ev_defer(r->api->set.ev, &r->api->record_due, on_settle, r->api);
}

static bool on_answer(struct http_req *req, void *arg)
{
    struct api_request *r = arg;
    struct audit *a = r->audit;
    int status = http_status(req);

    if (!interesting(r, status))
        return true;
    /* Also a 503 of the gate: if it says that nothing can be recorded, waiting for its record were waiting for good. */
    if (status >= 400 && !r->seq && (status < 500 || !r->admitted)) {
        record_refusal(r, status);
        return true;
    }
    if (!r->named)
        add_params(r, http_route(req));
    if (r->seq)
        record_later(r);
    return audit_wait(a, &r->wait, r->seq ? r->seq : record_outcome(r), on_recorded, r);
}

/* --- the gate --- */

struct api_request *api_record_new(struct api *api, struct http_req *req)
{
    struct api_request *r = mem_new(struct api_request);

    *r = (struct api_request){ .api = api,
                               .audit = api->set.audit,
                               .content = api->set.audit_content,
                               .req = req,
                               .next = api->requests,
                               .at = &api->requests };
    if (r->next)
        r->next->at = &r->next;
    api->requests = r;
    r->action = find_action(api, http_route(req));
    http_keep(req, r, request_free);
    http_set_user(req, r);
    if (api->set.audit)
        http_on_answer(req, on_answer, r);
    return r;
}

int api_record_may(struct api_request *r, struct err *err)
{
    const char *why = "";
    enum audit_state state = r->audit ? audit_state(r->audit, &why) : AUDIT_OPEN;

    r->admitted = !r->action->told || state == AUDIT_OPEN || (state == AUDIT_FULL && r->action->relief);
    if (r->admitted)
        return 0;
    return err_set(err, ERR_AUDIT, "%s, and nothing is changed without a record%s", why,
                   state == AUDIT_FULL ? "; what ends or removes things still works" : "");
}

/* --- acts of the server, and those that come inside a connection --- */

void api_record_init(struct api *api)
{
    for (const struct http_route *const *t = api_tables; *t; t++)
        for (const struct http_route *r = *t; r->pattern; r++) {
            api->actions = mem_resize(api->actions, api->nactions + 1, sizeof(*api->actions));
            action_of(r, &api->actions[api->nactions++]);
        }
    api->flood = flood_new();
    api->security = security_new();
}

void api_record_done(struct api *api)
{
    struct flood_sum s;

    while (api->set.audit && flood_next(api->flood, 0, true, &s))
        write_sum(api, &s);
    api_record_settle(api);
    ev_defer_clear(api->set.ev, &api->record_due);
    while (api->requests) { /* whoever still answers them finds nothing to record with */
        struct api_request *r = api->requests;

        api->requests = r->next;
        if (r->next)
            r->next->at = &api->requests;
        r->api = NULL;
        r->audit = NULL;
        r->next = NULL;
        r->at = &r->next;
        http_on_answer(r->req, NULL, NULL);
    }
    ev_timer_clear(api->set.ev, &api->flood_timer);
    flood_free(api->flood);
    security_free(api->security);
    free(api->actions);
}

uint64_t api_audit_act(struct api *api, const struct principal *who, const char *address, const char *action,
                       const char *outcome, const struct audit_pair *target, size_t ntarget, const char *details)
{
    struct audit_record rec = { .tenant = who->owner,
                                .action = action,
                                .outcome = outcome,
                                .kind = kinds[who->kind],
                                .key = who->key_id,
                                .user = who->user,
                                .address = address,
                                .target = target,
                                .ntarget = ntarget,
                                .details = details };
    char owner[STORE_OWNER_MAX + 1];

    if (!api->set.audit)
        return 0;
    find_owner(api, who, ntarget && str_eq(target[0].name, "sandbox") ? target[0].value : NULL, owner);
    tell_owner(api->set.audit, owner, &rec);
    return audit_append(api->set.audit, &rec, false);
}
