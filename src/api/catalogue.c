/* /, /v1/runtimes, /v1/capabilities and the contract itself: what this server can do, read from what it does it by. */
#include "api/contract.h"
#include "api/inside.h"

#include "base/mem.h"
#include "base/str.h"
#include "polfile/rows.h"

#include <limits.h>

static void json_runtime(const struct runtime *rt, struct jsonw *w)
{
    char path[PATH_MAX];
    struct err err = { 0 };
    bool there = runtime_find(rt, runtime_dirs, path, sizeof(path), &err) == 0;

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

void api_runtimes_json(struct jsonw *w)
{
    size_t n;
    const struct runtime *all = runtimes_all(&n);

    jsonw_key(w, "runtimes");
    jsonw_array(w);
    for (size_t i = 0; i < n; i++)
        json_runtime(&all[i], w);
    jsonw_end_array(w);
}

static bool no_query(struct http_req *req)
{
    struct err err = { 0 };

    if (api_no_query(req, &err) == 0)
        return true;
    http_answer_err(req, &err);
    return false;
}

/* For whoever opens the address in a browser or without a path: who is here, and where to go on. */
static void entrance(struct http_req *req, void *ctx)
{
    static const char *const links[][2] = {
        { "openapi", "/v1/openapi.yaml" },
        { "capabilities", "/v1/capabilities" },
        { "sandboxes", "/v1/sandboxes" },
        { "health", "/health" },
        { "ready", "/ready" },
        { "metrics", "/metrics" },
    };
    struct api *api = ctx;
    struct buf out = { 0 };
    struct jsonw w;

    if (!no_query(req))
        return;
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "name", "cove");
    jsonw_kstr(&w, "version", api->set.version);
    jsonw_key(&w, "links");
    jsonw_object(&w);
    for (size_t i = 0; i < ARRAY_LEN(links); i++)
        jsonw_kstr(&w, links[i][0], links[i][1]);
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    http_answer_json(req, 200, &out);
}

static void contract(struct http_req *req, void *ctx UNUSED)
{
    if (no_query(req))
        http_answer(req, 200, "application/yaml", api_contract, api_contract_len);
}

static void runtimes(struct http_req *req, void *ctx UNUSED)
{
    struct buf out = { 0 };
    struct jsonw w;

    if (!no_query(req))
        return;
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    api_runtimes_json(&w);
    jsonw_end_object(&w);
    http_answer_json(req, 200, &out);
}

static void runtime(struct http_req *req, void *ctx UNUSED)
{
    const struct runtime *rt = runtime_by_name(http_param(req, "runtime"));
    struct buf out = { 0 };
    struct jsonw w;
    struct err err;

    if (!no_query(req))
        return;
    if (!rt) {
        err_set(&err, ERR_RUNTIME_MISSING, "there is no such runtime; GET /v1/runtimes lists them");
        http_answer_err(req, &err);
        return;
    }
    jsonw_init(&w, &out, 0);
    json_runtime(rt, &w);
    http_answer_json(req, 200, &out);
}

static void json_levels(struct jsonw *w)
{
    static const struct {
        enum level level;
        bool available;
    } levels[] = { { LEVEL_STANDARD, true }, { LEVEL_HIGH, false }, { LEVEL_CUSTOM, true } };

    jsonw_key(w, "levels");
    jsonw_array(w);
    for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
        jsonw_object(w);
        jsonw_kstr(w, "name", level_name(levels[i].level));
        jsonw_kbool(w, "available", levels[i].available);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

/* Under the names that a request gives them. */
static void json_limits(struct jsonw *w)
{
    static const struct {
        const char *name;
        enum limit limit;
    } limits[] = {
        { "cpuMillis", LIMIT_CPU },       { "memoryBytes", LIMIT_MEMORY }, { "storageBytes", LIMIT_WORKSPACE },
        { "pids", LIMIT_PIDS },           { "timeoutMs", LIMIT_WALL },     { "cpuTimeMs", LIMIT_CPU_TIME },
        { "lifetimeMs", LIMIT_LIFETIME }, { "idleTimeoutMs", LIMIT_IDLE }, { "outputBytes", LIMIT_OUTPUT },
    };

    jsonw_key(w, "limits");
    jsonw_object(w);
    for (size_t i = 0; i < ARRAY_LEN(limits); i++) {
        const struct limit_info *info = limit_info(limits[i].limit);
        uint64_t max = limits[i].limit == LIMIT_OUTPUT ? EXECUTION_OUTPUT_MAX : info->max;

        jsonw_key(w, limits[i].name);
        jsonw_object(w);
        jsonw_ku64(w, "default", info->dflt);
        jsonw_ku64(w, "min", info->min);
        jsonw_ku64(w, "max", max);
        jsonw_kstr(w, "action", info->action);
        jsonw_end_object(w);
    }
    jsonw_end_object(w);
}

static void json_pools(struct jsonw *w)
{
    jsonw_key(w, "pools");
    jsonw_object(w);
    jsonw_ku64(w, "max", POOLS_MAX);
    jsonw_ku64(w, "maxMembers", POOL_SIZE_MAX);
    jsonw_kbool(w, "recycle", true);
    jsonw_end_object(w);
}

static void capabilities(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct buf out = { 0 };
    struct jsonw w;

    if (!no_query(req))
        return;
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "version", api->set.version);
    json_levels(&w);
    api_runtimes_json(&w);
    json_limits(&w);
    json_pools(&w);
    jsonw_end_object(&w);
    http_answer_json(req, 200, &out);
}

/* --- policies --- */

static void put_member(struct jsonw *w, const struct buf *object, const char *name)
{
    auto_json *all = json_loadb(object->data, object->len, 0, NULL);
    char *text = json_dumps(json_object_get(all, name), JSON_COMPACT);

    if (text)
        api_raw(w, name, text);
    free(text);
}

/* What is built in, and how a policy that extends nothing else reads in full, under the operator's floor. */
static void json_policy(const struct api *api, const char *name, bool whole, struct jsonw *w)
{
    static const struct floor none;
    const struct floor *floor = api->set.floor ? api->set.floor : &none;
    auto_buf document = { 0 };
    struct policy *p = mem_new(struct policy);
    struct rows rows;

    policy_builtin(name, p);
    jsonw_object(w);
    jsonw_kstr(w, "name", name);
    jsonw_kstr(w, "description", policy_says(name));
    jsonw_kbool(w, "available", p->level != LEVEL_HIGH);
    if (whole) {
        rows_of(p, floor, &rows);
        rows_json(p, floor, &rows, &document);
        rows_done(&rows);
        put_member(w, &document, "policy");
        put_member(w, &document, "sources");
    }
    jsonw_end_object(w);
    policy_done(p);
    free(p);
}

static void policies(struct http_req *req, void *ctx)
{
    struct buf out = { 0 };
    struct jsonw w;

    if (!no_query(req))
        return;
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_key(&w, "policies");
    jsonw_array(&w);
    for (const char *const *name = policy_builtins(); *name; name++)
        json_policy(ctx, *name, false, &w);
    jsonw_end_array(&w);
    jsonw_end_object(&w);
    http_answer_json(req, 200, &out);
}

static void policy(struct http_req *req, void *ctx)
{
    struct buf out = { 0 };
    struct jsonw w;
    struct err err;

    if (!no_query(req))
        return;
    for (const char *const *name = policy_builtins(); *name; name++)
        if (str_eq(*name, http_param(req, "policy"))) {
            jsonw_init(&w, &out, 0);
            json_policy(ctx, *name, true, &w);
            http_answer_json(req, 200, &out);
            return;
        }
    auto_buf names = { 0 };
    for (const char *const *name = policy_builtins(); *name; name++)
        buf_addf(&names, "%s%s", names.len ? ", " : "", *name);
    err_set(&err, ERR_POLICY_MISSING, "there is no policy '%.60s'; there are %s", http_param(req, "policy"),
            names.data);
    http_answer_err(req, &err);
}

const struct http_route catalogue_routes[] = {
    { "GET", "/", entrance, HTTP_BODY_NONE, .data = &api_open },
    { "GET", "/v1/openapi.yaml", contract, HTTP_BODY_NONE, .data = &api_open },
    { "GET", "/v1/policies", policies, HTTP_BODY_NONE, .data = &api_any },
    { "GET", "/v1/policies/{policy}", policy, HTTP_BODY_NONE, .data = &api_any },
    { "GET", "/v1/runtimes", runtimes, HTTP_BODY_NONE, .data = &api_any },
    { "GET", "/v1/runtimes/{runtime}", runtime, HTTP_BODY_NONE, .data = &api_any },
    { "GET", "/v1/capabilities", capabilities, HTTP_BODY_NONE, .data = &api_any },
    { 0 },
};
