/* The metadata of an update is merged and not replaced, so that two clients that each keep their
 * own pairs do not overwrite each other. */
#include "service/sandbox_update.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/network_json.h"
#include "service/network_field.h"

static int sandbox_update_read_name(const json_t *body, struct sandbox_update *u, struct err *err)
{
    const json_t *given = json_object_get(body, "name");
    const char *name = NULL;

    u->sets_name = given != NULL;
    if (!given || json_is_null(given))
        return 0;
    if (json_input_text(body, "", "name", 1, SPEC_NAME_MAX, &name, err) < 0 || spec_check_name(name, err) < 0)
        return -1;
    (void)str_copy(u->name, sizeof(u->name), name);
    return 0;
}

static int sandbox_update_read_metadata(const json_t *body, struct sandbox_update *u, struct err *err)
{
    const json_t *given = json_object_get(body, "metadata");
    json_t *pairs = NULL, *all = NULL;

    u->clears_metadata = json_is_null(given);
    if (!given || u->clears_metadata)
        return 0;
    if (json_input_object(body, "", "metadata", &pairs, err) < 0)
        return -1;
    u->metadata = json_incref(pairs);
    int rc = spec_merge_metadata(&all, pairs, err);
    json_decref(all);
    return rc;
}

static int sandbox_update_read_network(const json_t *body, struct sandbox_update *u, struct err *err)
{
    const json_t *given = json_object_get(body, "network");

    u->sets_network = given != NULL;
    return given ? network_field_read(given, &u->network, err) : 0;
}

int sandbox_update_read(const json_t *body, struct sandbox_update *ret, struct err *err)
{
    static const char *const names[] = { "name",       "metadata", "lifetimeMs", "idleTimeoutMs",
                                         "idleAction", "network",  NULL };
    const struct limit_info *lifetime = limit_info(LIMIT_LIFETIME), *idle = limit_info(LIMIT_IDLE);
    unsigned action = IDLE_END;

    *ret = (struct sandbox_update){ 0 };
    if (json_input_require_known_fields(body, "", names, err) < 0 || sandbox_update_read_name(body, ret, err) < 0 ||
        sandbox_update_read_metadata(body, ret, err) < 0 || sandbox_update_read_network(body, ret, err) < 0 ||
        json_input_u64(body, "", "lifetimeMs", lifetime->min, lifetime->max, &ret->lifetime_ms, NULL, err) < 0 ||
        json_input_u64(body, "", "idleTimeoutMs", idle->min, idle->max, &ret->idle_timeout_ms, &ret->sets_idle_timeout,
                       err) < 0 ||
        json_input_enum(body, "", "idleAction", idle_action_names, &action, err) < 0)
        return -1;
    ret->idle_action = (enum idle_action)action;
    ret->sets_idle_action = json_object_get(body, "idleAction") != NULL;
    if (json_object_size(body) == 0)
        return err_set(
            err, ERR_INVALID,
            "the body: changes nothing; set name, metadata, lifetimeMs, idleTimeoutMs, idleAction or network");
    return 0;
}

void sandbox_update_done(struct sandbox_update *u)
{
    json_decref(u->metadata);
    network_policy_done(&u->network);
    *u = (struct sandbox_update){ 0 };
}

struct sandbox_update *sandbox_update_copy(const struct sandbox_update *u)
{
    struct sandbox_update *copy = mem_copy(u, sizeof(*u));

    json_incref(copy->metadata);
    network_policy_copy(&copy->network, &u->network);
    return copy;
}

void sandbox_update_free(struct sandbox_update *u)
{
    if (u)
        sandbox_update_done(u);
    free(u);
}

int sandbox_update_merge_metadata(const struct sandbox_update *u, json_t **metadata, struct err *err)
{
    json_t *next = u->clears_metadata || !*metadata ? json_object() : json_copy(*metadata);

    if (u->metadata && spec_merge_metadata(&next, u->metadata, err) < 0) {
        json_decref(next);
        return -1;
    }
    json_decref(*metadata);
    *metadata = next;
    return 0;
}

void sandbox_update_json(const struct sandbox_update *u, struct jsonw *w)
{
    if (u->sets_name && u->name[0])
        jsonw_kstr(w, "name", u->name);
    else if (u->sets_name)
        jsonw_kraw(w, "name", "null");
    if (u->lifetime_ms)
        jsonw_ku64(w, "lifetimeMs", u->lifetime_ms);
    if (u->sets_idle_timeout)
        jsonw_ku64(w, "idleTimeoutMs", u->idle_timeout_ms);
    if (u->sets_idle_action)
        jsonw_kstr(w, "idleAction", idle_action_names[u->idle_action]);
    if (u->sets_network) {
        jsonw_key(w, "network");
        network_json_write(w, &u->network);
    }
}
