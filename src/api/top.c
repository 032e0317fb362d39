/* /v1/usage/live: every living sandbox with what it uses at this moment, in one answer: for those who watch many. Each
 * is asked for its figures at once; the answer goes out when the last has told them. Looking is not using: it keeps no
 * sandbox from being idle. */
#include "api/inside.h"

#include "base/clock.h"
#include "base/mem.h"

#define LIVING_MAX 1000u

struct look {
    struct glance *all;
    struct manager_living of;
    bool known;
    struct box_usage u;
};

struct glance {
    struct http_req *req;
    struct look *looks;
    size_t n, waiting;
};

static void put(struct jsonw *w, const char *name, uint64_t v, uint64_t unit)
{
    if (v != BOX_UNKNOWN)
        jsonw_ku64(w, name, v / unit);
}

static void look_json(struct jsonw *w, const struct look *l)
{
    jsonw_object(w);
    jsonw_kstr(w, "id", l->of.id);
    jsonw_kstr(w, "tenant", l->of.owner);
    jsonw_kstr(w, "state", l->of.paused ? "paused" : "running");
    api_time(w, "createdAt", l->of.created_ms);
    jsonw_ku64(w, "executions", l->of.executions);
    put(w, "cpuUs", l->u.cpu_ns, NS_PER_US);
    put(w, "memoryBytes", l->u.memory, 1);
    put(w, "pids", l->u.pids, 1);
    jsonw_key(w, "limits");
    jsonw_object(w);
    jsonw_ku64(w, "cpuMillis", l->of.cpu_millis);
    jsonw_ku64(w, "memoryBytes", l->of.memory_bytes);
    jsonw_ku64(w, "pids", l->of.pids);
    jsonw_end_object(w);
    jsonw_end_object(w);
}

static void finish(struct glance *g)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    api_time(&w, "at", clock_real_ns() / NS_PER_MS);
    jsonw_key(&w, "sandboxes");
    jsonw_array(&w);
    for (size_t i = 0; i < g->n; i++)
        if (g->looks[i].known)
            look_json(&w, &g->looks[i]);
    jsonw_end_array(&w);
    jsonw_kbool(&w, "truncated", g->n == LIVING_MAX);
    jsonw_end_object(&w);
    http_answer_json(g->req, 200, &out);
    free(g->looks);
    free(g);
}

/* One that ended meanwhile is not there any more. */
static void on_usage(void *arg, const struct box_usage *u, const struct err *err)
{
    struct look *l = arg;
    struct glance *g = l->all;

    l->known = !err;
    if (!err)
        l->u = *u;
    if (--g->waiting == 0)
        finish(g);
}

static void live(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct manager_living *living = mem_new_array(struct manager_living, LIVING_MAX);
    struct glance *g = mem_new(struct glance);

    g->req = req;
    g->n = manager_living(api->set.manager, api_sees(req), living, LIVING_MAX);
    g->looks = mem_new_array(struct look, g->n + 1);
    g->waiting = g->n + 1; /* our own, so that none of them is the last before all were asked */
    for (size_t i = 0; i < g->n; i++)
        g->looks[i] = (struct look){ .all = g, .of = living[i] };
    for (size_t i = 0; i < g->n; i++)
        manager_usage(api->set.manager, STORE_ANY_OWNER, living[i].id, on_usage, &g->looks[i]);
    free(living);
    if (--g->waiting == 0)
        finish(g);
}

const struct http_route top_routes[] = {
    { "GET", "/v1/usage/live", live, HTTP_BODY_NONE, .data = &api_read },
    { 0 },
};
