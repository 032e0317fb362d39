/* /compat/v1/warmpools: pools with the field names that clients of other servers use. Fields are
 * converted here, so that all other code knows one set of names.
 *
 * A field with a different meaning is refused rather than guessed: a target utilization is not a
 * target hit rate, an absent bound is not the largest bound, and the properties of members belong
 * to the template. */
#include "server/api/api_internal.h"

#include "server/api/pool_registry.h"
#include "core/base/str.h"

#define SECONDS_MAX (365 * 24 * 3600)

bool warmpools_compat_is_requested(const struct http_req *req)
{
    return str_starts(http_route(req)->pattern, "/compat/v1/warmpools");
}

/* --- reading --- */

struct warmpools_field {
    const char *compat_name, *native_name;
    json_int_t min, max, multiplier;
};

static int warmpools_rename_number(json_t *o, const char *in, const struct warmpools_field *n, struct err *err)
{
    const json_t *v = json_object_get(o, n->compat_name);

    if (!v)
        return 0;
    if (json_object_get(o, n->native_name))
        return err_set(err, ERR_INVALID, "%s%s means the same as %s; give only one of them", in, n->compat_name,
                       n->native_name);
    if (!json_is_integer(v) || json_integer_value(v) < n->min || json_integer_value(v) > n->max)
        return err_set(err, ERR_INVALID,
                       "%s%s: an integer from %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT " is required", in,
                       n->compat_name, n->min, n->max);
    json_object_set_new(o, n->native_name, json_integer(json_integer_value(v) * n->multiplier));
    json_object_del(o, n->compat_name);
    return 0;
}

static int warmpools_rename_scaling(json_t *body, struct err *err)
{
    static const char *const names[] = { "enabled", "targetUtilization", "scaleDownDelay", NULL };
    static const struct warmpools_field delay = { "scaleDownDelay", "scaleDownDelayMs", 1, SECONDS_MAX, 1000 };
    json_t *o = NULL;

    if (json_input_object(body, "", "autoScaling", &o, err) < 0)
        return -1;
    if (!o)
        return 0;
    if (json_object_get(body, "autoscale"))
        return err_set(err, ERR_INVALID, "autoScaling means the same as autoscale; give only one of them");
    if (json_input_require_known_fields(o, "autoScaling.", names, err) < 0)
        return -1;
    if (json_object_get(o, "targetUtilization"))
        return err_set(err, ERR_INVALID,
                       "autoScaling.targetUtilization: not supported; a pool aims at a rate of claims that hit: set "
                       "autoscale.targetHitRate");
    if (warmpools_rename_number(o, "autoScaling.", &delay, err) < 0)
        return -1;
    json_object_set(body, "autoscale", o);
    json_object_del(body, "autoScaling");
    return 0;
}

static int warmpools_rename_runtime(json_t *body, struct err *err)
{
    const char *runtime = NULL;

    if (json_input_text(body, "", "runtime", 1, STORE_NAME_MAX - 1, &runtime, err) < 0)
        return -1;
    if (!runtime)
        return 0;
    if (json_object_get(body, "template"))
        return err_set(err, ERR_INVALID, "runtime means the same as template; give only one of them");
    if (strchr(runtime, ':'))
        return err_set(err, ERR_INVALID,
                       "runtime: omit the ':' and the version after it; the host determines the version");
    json_object_set(body, "template", json_object_get(body, "runtime"));
    json_object_del(body, "runtime");
    return 0;
}

int warmpools_compat_read(json_t *body, struct err *err)
{
    static const char *const of_template[] = { "securityLevel", "resources", "profileRef", "preloadPackages",
                                               "preloadScripts" };
    static const struct warmpools_field numbers[] = { { "minSize", "min", 0, POOL_SIZE_MAX, 1 },
                                                      { "maxSize", "max", 1, POOL_SIZE_MAX, 1 },
                                                      { "ttl", "ttlMs", 0, SECONDS_MAX, 1000 } };

    for (size_t i = 0; i < ARRAY_LEN(of_template); i++)
        if (json_object_get(body, of_template[i]))
            return err_set(err, ERR_INVALID,
                           "%s: not a field of a pool; set it in a template and give the name of that template",
                           of_template[i]);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        if (warmpools_rename_number(body, "", &numbers[i], err) < 0)
            return -1;
    return warmpools_rename_runtime(body, err) < 0 ? -1 : warmpools_rename_scaling(body, err);
}

/* --- writing --- */

void warmpools_compat_write_pool(struct jsonw *w, const struct store_pool *row)
{
    jsonw_ku64(w, "minSize", row->min);
    jsonw_ku64(w, "maxSize", row->max);
    jsonw_ku64(w, "ttl", row->ttl_ms / 1000);
    jsonw_kobject(w, "autoScaling");
    jsonw_kbool(w, "enabled", row->autoscale);
    jsonw_ku64(w, "scaleDownDelay", row->scale_down_ms / 1000);
    jsonw_end_object(w);
}

static void warmpools_write_condition(struct jsonw *w, const char *type, bool holds)
{
    jsonw_object(w);
    jsonw_kstr(w, "type", type);
    jsonw_kstr(w, "status", holds ? "True" : "False");
    jsonw_end_object(w);
}

void warmpools_compat_write_status(struct jsonw *w, const struct pool_info *live)
{
    uint64_t now = live ? live->size : 0, wanted = live ? live->target : 0;

    jsonw_ku64(w, "availablePods", now);
    jsonw_ku64(w, "pendingPods", live ? live->starting : 0);
    jsonw_karray(w, "conditions");
    warmpools_write_condition(w, "PoolReady", live && now >= wanted);
    warmpools_write_condition(w, "ScalingUp", now < wanted);
    warmpools_write_condition(w, "ScalingDown", now > wanted);
    jsonw_end_array(w);
}
