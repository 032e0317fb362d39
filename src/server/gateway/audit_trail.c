/* The audit record of a request, made in one place for all routes: authorization begins it, the
 * response completes it.
 *
 * 1. A change is recorded before the client learns of it: the response is held until the record is
 *    in the file.
 * 2. Requests that create an object with its own id are recorded twice: as `accepted` when the work
 *    begins, so that writing the record does not delay the response, and with their outcome when it
 *    is known. The outcome is recorded after the response is sent and before any other request is
 *    handled.
 * 3. A refused request changed nothing: its record is written lazily, and a flood of refusals
 *    becomes a count (refusal_aggregator.h).
 * 4. An operator that acts on a sandbox of another tenant causes two records: one in the operator's
 *    tenant and, before it, one for the other tenant. The latter names the principal and the
 *    action, but omits the address and the details.
 * 5. Secrets are never recorded. Keys appear as their ids, query strings are omitted, and executed
 *    code appears as a hash and a length unless the operator enabled the text. */
#include "server/gateway/gateway_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

#define TEXT_MAX 4096u         /* bytes of a name or path */
#define CONTENT_MAX (64 * KIB) /* bytes of executed code, if the operator enabled it */
#define DETAILS_MAX (256 * KIB)

static const char *const audit_trail_principal_kinds[] = {
    [PRINCIPAL_LOCAL] = "local",   [PRINCIPAL_KEY] = "key",
    [PRINCIPAL_JWT] = "jwt",       [PRINCIPAL_SANDBOX_TOKEN] = "sandbox_token",
    [PRINCIPAL_TICKET] = "ticket", [PRINCIPAL_SIGNED] = "signed"
};

static struct gateway_request *audit_trail_request(const struct http_req *req)
{
    return http_user_data(req);
}

static void audit_trail_record_pending(struct gateway_request *r);

static void audit_trail_request_free(void *arg)
{
    struct gateway_request *r = arg;

    audit_trail_record_pending(r);
    *r->list_link = r->next;
    if (r->next)
        r->next->list_link = r->list_link;
    for (size_t i = 0; i < r->ntarget; i++)
        free(r->target_values[i]);
    for (size_t i = 0; i < r->ntarget_names; i++)
        free(r->target_names[i]);
    buf_done(&r->details);
    free(r);
}

static const struct audit_action *audit_trail_find_action(const struct gateway *gateway, const struct http_route *route)
{
    for (size_t i = 0; i < gateway->nactions; i++)
        if (gateway->actions[i].route == route)
            return &gateway->actions[i];
    return NULL;
}

/* --- additions by handlers --- */

static bool audit_trail_has_target(const struct gateway_request *r, const char *name)
{
    for (size_t i = 0; i < r->ntarget; i++)
        if (str_eq(r->target[i].name, name))
            return true;
    return false;
}

/* The first value of a name is kept: a handler names the object that it creates before the
 * parameters of the path are added, and a record with a key twice is not valid JSON. */
void audit_trail_add_target(const struct http_req *req, const char *name, const char *value)
{
    struct gateway_request *r = audit_trail_request(req);

    if (!r || !r->audit || r->ntarget == GATEWAY_TARGETS_MAX || audit_trail_has_target(r, name))
        return;
    r->target[r->ntarget].name = name;
    r->target_values[r->ntarget] = str_dup_n(value, strnlen(value, TEXT_MAX));
    r->target[r->ntarget].value = r->target_values[r->ntarget];
    r->ntarget++;
}

static void audit_trail_detail_key(struct gateway_request *r, const char *key)
{
    buf_adds(&r->details, r->details.len ? ",\"" : "{\"");
    buf_adds(&r->details, key);
    buf_adds(&r->details, "\":");
}

static void audit_trail_detail_text(struct gateway_request *r, const char *key, const char *value, size_t len)
{
    struct jsonw w;

    if (r->details.len + len > DETAILS_MAX)
        return;
    audit_trail_detail_key(r, key);
    jsonw_init(&w, &r->details, 0);
    jsonw_strn(&w, value, len);
}

void audit_trail_add_detail(const struct http_req *req, const char *key, const char *value)
{
    struct gateway_request *r = audit_trail_request(req);

    if (r && r->audit)
        audit_trail_detail_text(r, key, value, strnlen(value, TEXT_MAX));
}

void audit_trail_add_number(const struct http_req *req, const char *key, uint64_t value)
{
    struct gateway_request *r = audit_trail_request(req);

    if (!r || !r->audit || r->details.len > DETAILS_MAX)
        return;
    audit_trail_detail_key(r, key);
    buf_addf(&r->details, "%" PRIu64, value);
}

void audit_trail_add_content(const struct http_req *req, const char *key, const char *data, size_t len)
{
    struct gateway_request *r = audit_trail_request(req);
    uint8_t hash[CHAIN_HASH];
    char hex[2 * CHAIN_HASH + 1];

    if (!r || !r->audit || !data)
        return;
    if (r->record_content) {
        audit_trail_detail_text(r, key, data, min_size(len, CONTENT_MAX));
        if (len <= CONTENT_MAX)
            return;
    }
    chain_sha256(data, len, hash);
    chain_hex(hash, CHAIN_HASH, hex);
    auto_free char *sum = str_printf("%sSha256", key), *size = str_printf("%sBytes", key);
    audit_trail_detail_text(r, sum, hex, strlen(hex));
    audit_trail_add_number(req, size, len);
}

void audit_trail_add_strings(const struct http_req *req, const char *key, const char *const *words)
{
    auto_buf text = { 0 };

    for (; words && *words; words++)
        buf_add(&text, *words, strlen(*words) + 1);
    if (text.len > 0)
        audit_trail_add_content(req, key, text.data, text.len);
}

/* --- one record --- */

/* Targets from the path: {sandboxId} becomes "sandbox", {keyId} "key", {template} "template". */
static void audit_trail_add_path_params(struct gateway_request *r, const struct http_route *route)
{
    for (const char *p = strchr(route->pattern, '{'); p; p = strchr(p + 1, '{')) {
        size_t n = strcspn(++p, "*}");
        char *name = str_dup_n(p, n);
        const char *value = http_param(r->req, name);

        if (n > 2 && str_eq(name + n - 2, "Id"))
            name[n - 2] = '\0';
        bool has_target = value && *value && r->ntarget_names < GATEWAY_TARGETS_MAX;
        if (has_target) {
            r->target_names[r->ntarget_names++] = name;
            audit_trail_add_target(r->req, name, value);
        } else {
            free(name);
        }
    }
    const char *path = http_query(r->req, "path");
    if (path && *path) { /* of a file; absolute, as in the records of all requests about files */
        auto_free char *full = path[0] == '/' ? str_dup(path) : str_printf("/workspace/%s", path);

        audit_trail_add_target(r->req, "path", full);
    }
}

/* A quota or a maximum (409) refuses like a missing permission; other conflicts are failures. */
static bool audit_trail_is_refusal(int status, enum err_id error)
{
    return status == 401 || status == 403 || status == 404 || status == 421 || status == 429 ||
           (status == 409 && err_info(error)->kind == ERR_KIND_LIMIT);
}

static const char *audit_trail_outcome(int status, enum err_id error)
{
    return status < 400 ? "success" : audit_trail_is_refusal(status, error) ? "refused" : "failed";
}

static struct audit_record audit_trail_begin_record(struct gateway_request *r, const char *outcome)
{
    const struct http_peer *peer = http_peer(r->req);
    bool other_id = !str_eq(http_id(r->req), http_server_assigned_id(r->req));

    if (r->details.len && r->details.data[r->details.len - 1] != '}')
        buf_adds(&r->details, "}");
    return (struct audit_record){ .tenant = r->principal.owner,
                                  .action = r->action->name,
                                  .outcome = outcome,
                                  .kind = r->authenticated ? audit_trail_principal_kinds[r->principal.kind]
                                                           : "anonymous",
                                  .key = r->principal.key_id,
                                  .user = r->principal.user,
                                  .address = peer->is_unix ? "local" : peer->addr,
                                  .target = r->target,
                                  .ntarget = r->ntarget,
                                  .request = http_server_assigned_id(r->req),
                                  .client_request = other_id ? http_id(r->req) : NULL,
                                  .details = r->details.len ? r->details.data : NULL };
}

/* For the tenant that owns the sandbox. Appended first, so a wait for the other record covers
 * it. */
static void audit_trail_record_for_owner(struct audit *audit, const char *owner, const struct audit_record *of)
{
    struct audit_record rec = *of;

    if (!owner[0])
        return;
    rec.tenant = owner;
    rec.kind = "operator";
    rec.address = rec.client_request = rec.details = NULL;
    audit_append(audit, &rec, false);
}

static void audit_trail_find_other_owner(const struct gateway *gateway, const struct principal *principal,
                                         const char *sandbox, char ret[STORE_OWNER_MAX + 1])
{
    const char *owner = sandbox && principal_has_scopes(principal, SCOPE_BIT(ADMIN))
                            ? gateway->settings.hooks.sandbox_owner(gateway->settings.hooks.arg, sandbox)
                            : NULL;

    ret[0] = '\0';
    if (owner && !str_eq(owner, principal->owner))
        (void)str_copy(ret, STORE_OWNER_MAX + 1, owner);
}

void audit_trail_set_error(const struct http_req *req, enum err_id error)
{
    struct gateway_request *r = audit_trail_request(req);

    if (r)
        r->body_error = error;
}

static enum err_id audit_trail_error(const struct gateway_request *r)
{
    enum err_id error = http_answer_error_id(r->req);

    return error ? error : r->body_error;
}

static int audit_trail_status(const struct gateway_request *r)
{
    int status = http_answer_status(r->req);

    return status < 400 && r->body_error ? err_info(r->body_error)->http : status;
}

void audit_trail_resolve_tenant(struct gateway_request *r)
{
    audit_trail_find_other_owner(r->gateway, &r->principal, http_param(r->req, "sandboxId"), r->acted_on_tenant);
}

void audit_trail_set_action(struct gateway_request *r, const struct gateway_action *action)
{
    r->body_action = (struct audit_action){ .route = r->action->route,
                                            .is_change = action->is_change,
                                            .record_success = action->is_change };
    (void)str_copy(r->body_action.name, sizeof(r->body_action.name), action->name);
    r->action = &r->body_action;
    if (action->tool)
        audit_trail_add_target(r->req, "tool", action->tool);
    if (!action->sandbox)
        return;
    audit_trail_add_target(r->req, "sandbox", action->sandbox);
    audit_trail_find_other_owner(r->gateway, &r->principal, action->sandbox, r->acted_on_tenant);
}

void audit_trail_record_accepted(const struct http_req *req)
{
    struct gateway_request *r = audit_trail_request(req);

    if (!r || !r->audit || !r->action->record_success || r->accepted_seq)
        return;
    if (!r->target_recorded)
        audit_trail_add_path_params(r, http_route(req));
    r->target_recorded = true;
    struct audit_record rec = audit_trail_begin_record(r, "accepted");
    audit_trail_record_for_owner(r->audit, r->acted_on_tenant, &rec);
    r->accepted_seq = audit_append(r->audit, &rec, false);
    buf_clear(&r->details); /* already recorded; the outcome adds its own details */
}

static void audit_trail_on_recorded(void *arg)
{
    struct gateway_request *r = arg;

    http_release_answer(r->req);
}

/* --- refusals --- */

static void audit_trail_fill_refusal_key(struct refusal_key *k, const struct principal *principal, bool known,
                                         const char *address, const char *action, enum err_id error, int status)
{
    *k = (struct refusal_key){ .status = status };
    snprintf(k->tenant, sizeof(k->tenant), "%s", known ? principal->owner : "");
    snprintf(k->kind, sizeof(k->kind), "%s", known ? audit_trail_principal_kinds[principal->kind] : "anonymous");
    snprintf(k->actor, sizeof(k->actor), "%s", known ? principal->key_id : "");
    snprintf(k->user, sizeof(k->user), "%s", known ? principal->user : "");
    snprintf(k->address, sizeof(k->address), "%s", address);
    snprintf(k->action, sizeof(k->action), "%s", action);
    snprintf(k->error, sizeof(k->error), "%s", error ? err_info(error)->code : "");
}

static void audit_trail_write_refusal_sum(struct gateway *gateway, const struct refusal_summary *s)
{
    char at[32];
    auto_free char *details = str_printf("{\"count\":%" PRIu64 ",\"since\":\"%s\"}", s->count,
                                         clock_rfc3339(s->since_ms * NS_PER_MS, at));

    audit_append(gateway->settings.audit,
                 &(struct audit_record){ .tenant = s->key.tenant,
                                         .action = s->key.action,
                                         .outcome = s->key.status
                                                        ? audit_trail_outcome(s->key.status, err_by_code(s->key.error))
                                                        : "refused",
                                         .status = s->key.status,
                                         .error = s->key.error,
                                         .kind = s->key.kind,
                                         .key = s->key.actor,
                                         .user = s->key.user,
                                         .address = s->key.address,
                                         .details = details },
                 true);
}

static void audit_trail_on_refusal_timer(void *arg)
{
    struct gateway *gateway = arg;
    struct refusal_summary s;
    uint64_t now = ev_now(gateway->settings.ev);

    while (refusal_aggregator_next(gateway->refusals, now, false, &s))
        audit_trail_write_refusal_sum(gateway, &s);
    if (refusal_aggregator_due_ns(gateway->refusals))
        ev_timer_set(gateway->settings.ev, &gateway->refusal_summary_timer,
                     refusal_aggregator_due_ns(gateway->refusals), audit_trail_on_refusal_timer, gateway);
}

bool audit_trail_should_record(struct gateway *gateway, const struct refusal_key *k)
{
    bool yes = refusal_aggregator_admit(gateway->refusals, k, ev_now(gateway->settings.ev), clock_real_ms());

    if (!yes && !gateway->refusal_summary_timer.slot)
        ev_timer_set(gateway->settings.ev, &gateway->refusal_summary_timer,
                     refusal_aggregator_due_ns(gateway->refusals), audit_trail_on_refusal_timer, gateway);
    return yes;
}

static void audit_trail_record_refusal(struct gateway_request *r, int status)
{
    const struct http_peer *peer = http_peer(r->req);
    enum err_id error = audit_trail_error(r);
    struct refusal_key k;

    audit_trail_fill_refusal_key(&k, &r->principal, r->authenticated, peer->is_unix ? "local" : peer->addr,
                                 r->action->name, error, status);
    security_events_count_refusal(r->gateway, &k);
    if (!audit_trail_should_record(r->gateway, &k))
        return;
    if (!r->target_recorded)
        audit_trail_add_path_params(r, http_route(r->req));
    struct audit_record rec = audit_trail_begin_record(r, audit_trail_outcome(status, error));
    rec.status = status;
    rec.error = k.error;
    audit_append(r->audit, &rec, true);
}

/* Records requests that were refused before authorization because of their head alone. */
void audit_trail_unrouted_request(struct gateway *gateway, const struct http_request_summary *done)
{
    const struct audit_action *action = done->route ? audit_trail_find_action(gateway, done->route) : NULL;
    struct refusal_key k;

    if (!gateway->settings.audit || done->status < 400 || (action && !action->is_change && done->status != 403))
        return;
    audit_trail_fill_refusal_key(&k, NULL, false, done->peer->is_unix ? "local" : done->peer->addr,
                                 action ? action->name : "request.refuse", done->error, done->status);
    security_events_count_refusal(gateway, &k);
    if (!audit_trail_should_record(gateway, &k))
        return;
    audit_append(gateway->settings.audit,
                 &(struct audit_record){ .action = k.action,
                                         .outcome = audit_trail_outcome(done->status, done->error),
                                         .status = done->status,
                                         .error = k.error,
                                         .kind = k.kind,
                                         .address = k.address,
                                         .request = done->own_id,
                                         .client_request = str_eq(done->id, done->own_id) ? NULL : done->id },
                 true);
}

/* --- the response --- */

static bool audit_trail_is_recorded_outcome(const struct gateway_request *r, int status)
{
    return r->action->record_success || audit_trail_is_refusal(status, audit_trail_error(r));
}

static uint64_t audit_trail_record_outcome(struct gateway_request *r)
{
    int status = audit_trail_status(r);
    enum err_id error = audit_trail_error(r);
    struct audit_record rec = audit_trail_begin_record(r, audit_trail_outcome(status, error));

    rec.status = status;
    rec.error = error ? err_info(error)->code : NULL;
    audit_trail_record_for_owner(r->audit, r->acted_on_tenant, &rec);
    return audit_append(r->audit, &rec, r->accepted_seq != 0);
}

static void audit_trail_record_pending(struct gateway_request *r)
{
    if (!r->pending_link)
        return;
    *r->pending_link = r->next_pending;
    if (r->next_pending)
        r->next_pending->pending_link = r->pending_link;
    r->pending_link = NULL;
    if (r->audit)
        audit_trail_record_outcome(r);
}

void audit_trail_flush_pending(struct gateway *gateway)
{
    while (gateway->pending_records)
        audit_trail_record_pending(gateway->pending_records);
}

static void audit_trail_on_flush(void *arg)
{
    audit_trail_flush_pending(arg);
}

static void audit_trail_record_later(struct gateway_request *r)
{
    struct gateway_request **end = &r->gateway->pending_records;

    while (*end)
        end = &(*end)->next_pending;
    *end = r;
    r->pending_link = end;
    r->next_pending = NULL;
    ev_defer(r->gateway->settings.ev, &r->gateway->pending_records_defer, audit_trail_on_flush, r->gateway);
}

static bool audit_trail_on_answer(struct http_req *req, void *arg)
{
    struct gateway_request *r = arg;
    struct audit *a = r->audit;
    int status = audit_trail_status(r);

    if (!audit_trail_is_recorded_outcome(r, status))
        return true;
    /* Includes a 503 of authorization: a response "cannot be recorded" must not wait for its own
     * record, which would never be written. */
    if (status >= 400 && !r->accepted_seq && (status < 500 || !r->admitted)) {
        audit_trail_record_refusal(r, status);
        return true;
    }
    if (!r->target_recorded)
        audit_trail_add_path_params(r, http_route(req));
    if (r->accepted_seq)
        audit_trail_record_later(r);
    return audit_wait(a, &r->record_wait, r->accepted_seq ? r->accepted_seq : audit_trail_record_outcome(r),
                      audit_trail_on_recorded, r);
}

/* --- authorization --- */

struct gateway_request *audit_trail_new_request(struct gateway *gateway, struct http_req *req)
{
    struct gateway_request *r = mem_new(struct gateway_request);

    *r = (struct gateway_request){ .gateway = gateway,
                                   .audit = gateway->settings.audit,
                                   .record_content = gateway->settings.audit_content,
                                   .req = req,
                                   .next = gateway->requests,
                                   .list_link = &gateway->requests };
    if (r->next)
        r->next->list_link = &r->next;
    gateway->requests = r;
    r->action = audit_trail_find_action(gateway, http_route(req));
    http_free_with_request(req, r, audit_trail_request_free);
    http_set_user_data(req, r);
    if (gateway->settings.audit)
        http_on_answer(req, audit_trail_on_answer, r);
    return r;
}

int audit_trail_can_record(struct gateway_request *r, struct err *err)
{
    const char *why = "";
    enum audit_state state = r->audit ? audit_state(r->audit, &why) : AUDIT_OPEN;

    r->admitted = !r->action->record_success || state == AUDIT_OPEN ||
                  (state == AUDIT_FULL && r->action->frees_resources);
    if (r->admitted)
        return 0;
    return err_set(err, ERR_AUDIT, "%s; changes are refused because they cannot be recorded%s", why,
                   state == AUDIT_FULL ? "; requests that end or remove objects still work" : "");
}

/* --- actions without a request, on connections that stay open --- */

void audit_trail_add_routes(struct gateway *gateway, const struct http_route *routes)
{
    for (const struct http_route *r = routes; r->pattern; r++) {
        gateway->actions = mem_resize(gateway->actions, gateway->nactions + 1, sizeof(*gateway->actions));
        audit_action_of_route(r, &gateway->actions[gateway->nactions++]);
    }
}

void audit_trail_init(struct gateway *gateway)
{
    gateway->refusals = refusal_aggregator_new();
    gateway->security = security_new();
}

void audit_trail_done(struct gateway *gateway)
{
    struct refusal_summary s;

    while (gateway->settings.audit && refusal_aggregator_next(gateway->refusals, 0, true, &s))
        audit_trail_write_refusal_sum(gateway, &s);
    audit_trail_flush_pending(gateway);
    ev_defer_clear(gateway->settings.ev, &gateway->pending_records_defer);
    while (gateway->requests) { /* later responses find gateway == NULL and record nothing */
        struct gateway_request *r = gateway->requests;

        gateway->requests = r->next;
        if (r->next)
            r->next->list_link = &gateway->requests;
        r->gateway = NULL;
        r->audit = NULL;
        r->next = NULL;
        r->list_link = &r->next;
        http_on_answer(r->req, NULL, NULL);
    }
    ev_timer_clear(gateway->settings.ev, &gateway->refusal_summary_timer);
    refusal_aggregator_free(gateway->refusals);
    security_free(gateway->security);
    free(gateway->actions);
}

uint64_t audit_trail_record_action(struct gateway *gateway, const struct principal *principal, const char *address,
                                   const char *request, const char *action, const char *outcome,
                                   const struct audit_pair *target, size_t ntarget, const char *details)
{
    struct audit_record rec = { .tenant = principal->owner,
                                .action = action,
                                .outcome = outcome,
                                .kind = audit_trail_principal_kinds[principal->kind],
                                .key = principal->key_id,
                                .user = principal->user,
                                .address = address,
                                .request = request,
                                .target = target,
                                .ntarget = ntarget,
                                .details = details };
    char owner[STORE_OWNER_MAX + 1];

    if (!gateway->settings.audit)
        return 0;
    audit_trail_find_other_owner(gateway, principal,
                                 ntarget && str_eq(target[0].name, "sandbox") ? target[0].value : NULL, owner);
    audit_trail_record_for_owner(gateway->settings.audit, owner, &rec);
    return audit_append(gateway->settings.audit, &rec, false);
}
