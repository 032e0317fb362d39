/* /v1/tenants/{tenant}/budget: what a tenant may use in a day and in a month. The operator sets it; the tenant sees it,
 * with what was used of it. */
#include "api/inside.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/tenants.h"

#define MAX_UNITS 1000000000000u

static const char *const periods[STORE_PERIODS + 1] = { "day", "month" };
static const char *const figures[STORE_BUDGETED + 1] = { "cpuSeconds", "sandboxSeconds", "executions" };

struct setting {
    struct http_req *req;
    struct api *api;
    struct store_budget row;
};

static void answer(struct http_req *req, const struct store_budget *row, struct manager_budget *used)
{
    struct buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "tenant", row->owner);
    for (int p = 0; p < STORE_PERIODS; p++) {
        jsonw_key(&w, periods[p]);
        jsonw_object(&w);
        for (int k = 0; k < STORE_BUDGETED; k++)
            if (row->max[p][k])
                jsonw_ku64(&w, figures[k], row->max[p][k]);
        if (used) {
            jsonw_key(&w, "used");
            jsonw_object(&w);
            for (int k = 0; k < STORE_BUDGETED; k++)
                jsonw_ku64(&w, figures[k], used->used[p][k]);
            jsonw_end_object(&w);
            api_time(&w, "renewsAt", used->renews_ms[p]);
        }
        jsonw_end_object(&w);
    }
    jsonw_end_object(&w);
    http_answer_json(req, 200, &out);
}

/* --- reading --- */

static void on_budgets(void *arg, const struct err *err, const struct store_budget *rows, size_t n)
{
    auto_free struct setting *s = arg;
    struct manager_budget used;

    if (err) {
        http_answer_err(s->req, err);
        return;
    }
    bool known = manager_budget_used(s->api->set.manager, s->row.owner, &used);
    answer(s->req, n ? &rows[0] : &s->row, known ? &used : NULL);
}

static void on_tenant(void *arg, const struct err *err, const struct store_tenant *row UNUSED)
{
    struct setting *s = arg;

    if (err) {
        http_answer_err(s->req, err);
        free(s);
        return;
    }
    store_budget_list(s->api->set.store, s->row.owner, on_budgets, s);
}

static struct setting *begin(struct http_req *req, struct api *api)
{
    const char *name = http_param(req, "tenant");
    struct setting *s = mem_new(struct setting);
    struct err err;

    s->req = req;
    s->api = api;
    bool theirs = str_eq(api_sees(req), STORE_ANY_OWNER) || str_eq(api_sees(req), name);
    if (theirs && store_owner_valid(name) && str_copy(s->row.owner, sizeof(s->row.owner), name))
        return s;
    err_set(&err, ERR_MISSING, "there is no such tenant");
    http_answer_err(req, &err);
    free(s);
    return NULL;
}

static void get(struct http_req *req, void *ctx)
{
    struct setting *s = begin(req, ctx);

    if (s)
        store_tenant_get(s->api->set.store, s->row.owner, on_tenant, s);
}

/* --- setting --- */

static void on_put(void *arg, const struct err *err)
{
    auto_free struct setting *s = arg;
    struct manager_budget used;

    if (err) {
        http_answer_err(s->req, err);
        return;
    }
    manager_budget(s->api->set.manager, &s->row);
    bool known = manager_budget_used(s->api->set.manager, s->row.owner, &used);
    answer(s->req, &s->row, known ? &used : NULL);
}

static void on_tenant_there(void *arg, const struct err *err, const struct store_tenant *row UNUSED)
{
    struct setting *s = arg;

    if (err) {
        http_answer_err(s->req, err);
        free(s);
        return;
    }
    store_budget_put(s->api->set.store, &s->row, on_put, s);
}

static int read_period(const json_t *body, int p, struct store_budget *row, struct err *err)
{
    auto_free char *path = str_printf("%s.", periods[p]);
    json_t *object = NULL;

    if (body_object(body, "", periods[p], &object, err) < 0)
        return -1;
    if (!object)
        return 0;
    if (body_only(object, path, figures, err) < 0)
        return -1;
    for (int k = 0; k < STORE_BUDGETED; k++)
        if (body_u64(object, path, figures[k], 1, MAX_UNITS, &row->max[p][k], NULL, err) < 0)
            return -1;
    return 0;
}

/* "day.executions": 5; what is not there has no bound from now on. */
static void record(const struct setting *s)
{
    for (int p = 0; p < STORE_PERIODS; p++)
        for (int k = 0; k < STORE_BUDGETED; k++)
            if (s->row.max[p][k]) {
                auto_free char *name = str_printf("%s.%s", periods[p], figures[k]);

                api_audit_number(s->req, name, s->row.max[p][k]);
            }
}

static void put(struct http_req *req, void *ctx)
{
    struct setting *s = begin(req, ctx);
    auto_json *body = NULL;
    struct err err = { 0 };

    if (!s)
        return;
    s->row.updated_ms = clock_real_ns() / NS_PER_MS;
    if (api_body(req, &body, &err) < 0 || body_only(body, "", periods, &err) < 0 ||
        read_period(body, STORE_DAY, &s->row, &err) < 0 || read_period(body, STORE_MONTH, &s->row, &err) < 0) {
        http_answer_err(req, &err);
        free(s);
        return;
    }
    record(s);
    store_tenant_get(s->api->set.store, s->row.owner, on_tenant_there, s);
}

const struct http_route budget_routes[] = {
    { "GET", "/v1/tenants/{tenant}/budget", get, HTTP_BODY_NONE, .data = &api_usage },
    { "PUT", "/v1/tenants/{tenant}/budget", put, HTTP_BODY_BUFFERED, 16 * KIB, "application/json", &api_admin },
    { 0 },
};
