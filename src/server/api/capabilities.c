/* /, /v1/runtimes, /v1/capabilities and the OpenAPI document: what this server supports, taken from
 * the tables that implement it. */
#include "server/api/api_internal.h"
#include "server/api/execute_tier.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/file/policy_rows.h"
#include "service/driver_states.h"

#include <limits.h>

static void api_write_runtime(const struct api *api, const struct language *rt, struct jsonw *w)
{
    char path[PATH_MAX];
    struct err err = { 0 };
    bool there = driver_states_find_language(api->settings.operator_limits, rt, path, sizeof(path), &err) == 0;

    jsonw_object(w);
    jsonw_kstr(w, "name", rt->name);
    jsonw_kstr(w, "program", rt->program);
    jsonw_kstr(w, "profile", profile_name(rt->profile));
    jsonw_kbool(w, "available", there);
    if (there)
        jsonw_kstr(w, "path", path);
    else
        jsonw_kstr(w, "reason", err.msg);
    jsonw_end_object(w);
}

static void api_write_runtimes(const struct api *api, struct jsonw *w)
{
    size_t n;
    const struct language *all = languages_all(&n);

    for (size_t i = 0; i < n; i++)
        api_write_runtime(api, &all[i], w);
}

/* For a client that requests the bare address, such as a browser: the product, its version and
 * links. */
static void api_get_root(struct http_req *req, void *ctx)
{
    static const char *const links[][2] = {
        { "docs", "/docs" },
        { "openapi", "/v1/openapi.json" },
        { "capabilities", "/v1/capabilities" },
        { "sandboxes", "/v1/sandboxes" },
        { "health", "/health" },
        { "ready", "/ready" },
        { "metrics", "/metrics" },
    };
    struct api *api = ctx;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_has_no_query(req))
        return;
    api_object_begin(&w, &out);
    jsonw_kstr(&w, "name", "cove");
    jsonw_kstr(&w, "version", api->settings.version);
    jsonw_kobject(&w, "links");
    for (size_t i = 0; i < ARRAY_LEN(links); i++)
        jsonw_kstr(&w, links[i][0], links[i][1]);
    jsonw_end_object(&w);
    api_object_end(req, 200, &w);
}

static void api_runtime_list(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_has_no_query(req))
        return;
    (void)api_list_begin(req, NULL, &w, &out);
    api_write_runtimes(api, &w);
    api_list_end(req, &w, NULL);
}

static void api_runtime_get(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    const struct language *rt = language_by_name(http_param(req, "runtime"));
    struct buf out = { 0 };
    struct jsonw w;
    struct err err;

    if (!api_has_no_query(req))
        return;
    if (!rt) {
        (void)language_unknown_error("runtime", http_param(req, "runtime"), &err);
        err_sanitize(&err);
        http_answer_err(req, &err);
        return;
    }
    jsonw_init(&w, &out, 0);
    api_write_runtime(api, rt, &w);
    http_answer_json(req, 200, &out);
}

static void capabilities_write_levels(struct jsonw *w)
{
    static const struct {
        enum level level;
        bool available;
    } levels[] = { { LEVEL_STANDARD, true }, { LEVEL_HIGH, false }, { LEVEL_CUSTOM, true } };

    jsonw_karray(w, "levels");
    for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
        jsonw_object(w);
        jsonw_kstr(w, "name", level_name(levels[i].level));
        jsonw_kbool(w, "available", levels[i].available);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

/* Limits under their names in requests. */
static void capabilities_write_limits(struct jsonw *w)
{
    static const enum limit limits[] = { LIMIT_CPU,      LIMIT_MEMORY,   LIMIT_WORKSPACE, LIMIT_PIDS,  LIMIT_WALL,
                                         LIMIT_CPU_TIME, LIMIT_LIFETIME, LIMIT_IDLE,      LIMIT_OUTPUT };

    jsonw_kobject(w, "limits");
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        const struct limit_info *info = limit_info(limits[i]);
        uint64_t max = limits[i] == LIMIT_OUTPUT ? EXECUTION_OUTPUT_MAX : info->max;

        jsonw_kobject(w, spec_limit_field(limits[i]));
        jsonw_ku64(w, "default", info->dflt);
        jsonw_ku64(w, "min", info->min);
        jsonw_ku64(w, "max", max);
        jsonw_kstr(w, "action", info->action);
        jsonw_end_object(w);
    }
    jsonw_end_object(w);
}

static void capabilities_write_presets(struct jsonw *w)
{
    static const struct {
        const char *name, *summary;
    } presets[] = {
#define PRESET(name, summary) { #name, summary },
#define PRESET_HOST(name, host, port)
#include "policy/egress_presets.def"
#undef PRESET
#undef PRESET_HOST
    };
    static const struct {
        const char *preset, *host;
    } hosts[] = {
#define PRESET(name, summary)
#define PRESET_HOST(name, host, port) { #name, host },
#include "policy/egress_presets.def"
#undef PRESET
#undef PRESET_HOST
    };

    jsonw_karray(w, "presets");
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        jsonw_object(w);
        jsonw_kstr(w, "name", presets[i].name);
        jsonw_kstr(w, "summary", presets[i].summary);
        jsonw_karray(w, "hosts");
        for (size_t k = 0; k < ARRAY_LEN(hosts); k++)
            if (str_eq(hosts[k].preset, presets[i].name))
                jsonw_str(w, hosts[k].host);
        jsonw_end_array(w);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static void capabilities_write_open_ranges(const struct operator_limits *limits, struct jsonw *w)
{
    char text[IP_ADDRESS_TEXT];

    jsonw_karray(w, "openRanges");
    for (size_t i = 0; limits && i < limits->nopen_ranges; i++) {
        auto_free char *prefix = str_printf("%s/%u", ip_address_format(&limits->open_ranges[i].address, text),
                                            limits->open_ranges[i].bits);

        jsonw_str(w, prefix);
    }
    jsonw_end_array(w);
}

static void capabilities_write_network(const struct api *api, struct jsonw *w)
{
    const struct operator_limits *limits = api->settings.operator_limits;
    const char *why = limits && limits->forbids_network ? "the operator does not allow a network"
                                                        : manager_egress_absent_why(api->settings.manager);

    jsonw_kobject(w, "network");
    jsonw_kobject(w, "egress");
    jsonw_kbool(w, "available", !why);
    jsonw_kstr_if(w, "reason", why);
    capabilities_write_presets(w);
    capabilities_write_open_ranges(limits, w);
    if (api->settings.connections_per_sandbox)
        jsonw_ku64(w, "connectionsPerSandbox", api->settings.connections_per_sandbox);
    if (api->settings.connections_per_tenant)
        jsonw_ku64(w, "connectionsPerTenant", api->settings.connections_per_tenant);
    jsonw_end_object(w);
    jsonw_end_object(w);
}

static void capabilities_write_pools(struct jsonw *w)
{
    jsonw_kobject(w, "pools");
    jsonw_ku64(w, "max", POOLS_MAX);
    jsonw_ku64(w, "maxMembers", POOL_SIZE_MAX);
    jsonw_kbool(w, "recycle", true);
    jsonw_end_object(w);
}

static void capabilities_write_tools(struct jsonw *w)
{
    size_t n;
    const struct tool *all = tools_all(&n);

    jsonw_karray(w, "tools");
    for (size_t i = 0; i < n; i++)
        jsonw_str(w, all[i].name);
    jsonw_end_array(w);
}

static void capabilities_write_tiers(const struct api *api, struct jsonw *w)
{
    jsonw_karray(w, "tiers");
    for (enum code_tier t = TIER_CALCULATE; t <= TIER_FULL; t++) {
        jsonw_object(w);
        jsonw_kstr(w, "name", code_tier_names[t]);
        jsonw_kbool(w, "available", t == TIER_CALCULATE || api->settings.executor);
        if (t == TIER_SIMPLE) {
            jsonw_kstr(w, "template", tier_template);
            jsonw_ku64(w, "maxCodeBytes", TIER_CODE_MAX);
            jsonw_ku64(w, "maxTimeoutMs", TIER_TIMEOUT_MAX_MS);
        }
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

static void capabilities_write_scripts(const struct api *api, struct jsonw *w)
{
    const struct store_script_quota *quota = script_cache_quota(api->settings.script_cache);

    jsonw_kobject(w, "scripts");
    jsonw_ku64(w, "perTenant", quota->count);
    jsonw_ku64(w, "maxBytes", quota->bytes);
    jsonw_end_object(w);
}

static void api_get_capabilities(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_has_no_query(req))
        return;
    api_object_begin(&w, &out);
    jsonw_kstr(&w, "version", api->settings.version);
    capabilities_write_levels(&w);
    jsonw_karray(&w, "runtimes");
    api_write_runtimes(api, &w);
    jsonw_end_array(&w);
    driver_states_json(api->settings.operator_limits, &w);
    capabilities_write_limits(&w);
    capabilities_write_network(api, &w);
    capabilities_write_pools(&w);
    capabilities_write_tools(&w);
    capabilities_write_tiers(api, &w);
    calculate_write_capabilities(&w);
    capabilities_write_scripts(api, &w);
    secrets_write_capabilities(api, &w);
    if (api->settings.write_capabilities)
        api->settings.write_capabilities(api->settings.arg, &w);
    api_object_end(req, 200, &w);
}

/* --- policies --- */

static void capabilities_copy_member(struct jsonw *w, const struct buf *object, const char *name)
{
    auto_json *all = json_loadb(object->data, object->len, 0, NULL);
    char *text = json_dumps(json_object_get(all, name), JSON_COMPACT);

    if (text)
        api_write_raw_json(w, name, text);
    free(text);
}

/* Writes a built-in policy: its own document and, if `whole`, the resolved policy under the
 * operator limits. */
static void api_write_policy(const struct api *api, const char *name, bool whole, struct jsonw *w)
{
    static const struct operator_limits none;
    const struct operator_limits *floor = api->settings.operator_limits ? api->settings.operator_limits : &none;
    auto_buf document = { 0 };
    struct policy *p = mem_new(struct policy);
    struct policy_rows rows;

    policy_builtin(name, p);
    jsonw_object(w);
    jsonw_kstr(w, "name", name);
    jsonw_kstr(w, "description", policy_builtin_summary(name));
    jsonw_kbool(w, "available", p->level != LEVEL_HIGH);
    if (whole) {
        policy_rows_build(p, floor, &rows);
        policy_rows_json(p, floor, &rows, &document);
        policy_rows_done(&rows);
        capabilities_copy_member(w, &document, "policy");
        capabilities_copy_member(w, &document, "sources");
    }
    jsonw_end_object(w);
    policy_done(p);
    free(p);
}

static void api_policy_list(struct http_req *req, void *ctx)
{
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_has_no_query(req))
        return;
    (void)api_list_begin(req, NULL, &w, &out);
    for (const char *const *name = policy_builtins(); *name; name++)
        api_write_policy(ctx, *name, false, &w);
    api_list_end(req, &w, NULL);
}

static void api_policy_get(struct http_req *req, void *ctx)
{
    struct buf out = { 0 };
    struct jsonw w;

    if (!api_has_no_query(req))
        return;
    for (const char *const *name = policy_builtins(); *name; name++)
        if (str_eq(*name, http_param(req, "policy"))) {
            jsonw_init(&w, &out, 0);
            api_write_policy(ctx, *name, true, &w);
            http_answer_json(req, 200, &out);
            return;
        }
    auto_buf names = { 0 };
    for (const char *const *name = policy_builtins(); *name; name++)
        buf_addf(&names, "%s%s", names.len ? ", " : "", *name);
    http_refuse(req, ERR_POLICY_MISSING, "there is no policy '%.60s'; the policies are %s", http_param(req, "policy"),
                names.data);
}

const struct http_route capability_routes[] = {
    { "GET", "/", api_get_root, HTTP_BODY_NONE, .data = &permission_public },
    { "GET", "/v1", api_get_root, HTTP_BODY_NONE, .data = &permission_public },
    { "GET", "/v1/policies", api_policy_list, HTTP_BODY_NONE, .data = &permission_authenticated },
    { "GET", "/v1/policies/{policy}", api_policy_get, HTTP_BODY_NONE, .data = &permission_authenticated },
    { "GET", "/v1/runtimes", api_runtime_list, HTTP_BODY_NONE, .data = &permission_authenticated },
    { "GET", "/v1/runtimes/{runtime}", api_runtime_get, HTTP_BODY_NONE, .data = &permission_authenticated },
    { "GET", "/v1/capabilities", api_get_capabilities, HTTP_BODY_NONE, .data = &permission_authenticated },
    { 0 },
};
