/* /v1/tenants/{tenant}/budget: how much a tenant may use per day and per month. The operator sets
 * the budget; the tenant can read it together with its usage. */
#include "server/api/api_internal.h"

#include "core/base/clock.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "store/tenants.h"

#define MAX_UNITS 1000000000000000u

static const char *const api_budget_periods[STORE_PERIOD_COUNT + 1] = { "day", "month" };
static const char *const api_budget_figures[STORE_BUDGET_RESOURCES + 1] = { "cpuMs", "sandboxMs", "executions" };

struct api_budget_request {
    struct http_req *req;
    struct api *api;
    struct store_budget row;
    bool is_put;
};

static void api_budget_answer(const struct api_budget_request *s, const struct store_budget *row)
{
    struct manager_budget used;
    bool has_usage = budgets_get(manager_budgets(s->api->settings.manager), s->row.owner, &used);
    struct buf out = { 0 };
    struct jsonw w;

    api_object_begin(&w, &out);
    jsonw_kstr(&w, "tenant", row->owner);
    for (int p = 0; p < STORE_PERIOD_COUNT; p++) {
        jsonw_kobject(&w, api_budget_periods[p]);
        for (int k = 0; k < STORE_BUDGET_RESOURCES; k++)
            if (row->max[p][k])
                jsonw_ku64(&w, api_budget_figures[k], row->max[p][k]);
        if (has_usage) {
            jsonw_kobject(&w, "used");
            for (int k = 0; k < STORE_BUDGET_RESOURCES; k++)
                jsonw_ku64(&w, api_budget_figures[k], used.used[p][k]);
            jsonw_end_object(&w);
            api_write_time(&w, "renewsAt", used.renews_ms[p]);
        }
        jsonw_end_object(&w);
    }
    api_object_end(s->req, 200, &w);
}

/* --- reading --- */

static void api_budget_on_rows(void *arg, const struct err *err, const struct store_budget *rows, size_t n)
{
    struct api_budget_request *s = arg;

    if (!http_answer_if_err(s->req, err))
        api_budget_answer(s, n ? &rows[0] : &s->row);
}

static void api_budget_on_put(void *arg, const struct err *err)
{
    struct api_budget_request *s = arg;

    if (http_answer_if_err(s->req, err))
        return;
    budgets_set(manager_budgets(s->api->settings.manager), &s->row);
    api_budget_answer(s, &s->row);
}

static void api_budget_on_tenant(void *arg, const struct err *err, const struct store_tenant *row UNUSED)
{
    struct api_budget_request *s = arg;

    if (http_answer_if_err(s->req, err))
        return;
    if (s->is_put)
        store_budget_put(s->api->settings.store, &s->row, api_budget_on_put, s);
    else
        store_budget_list(s->api->settings.store, s->row.owner, api_budget_on_rows, s);
}

static struct api_budget_request *api_budget_new_request(struct http_req *req, struct api *api)
{
    const char *name = http_param(req, "tenant");
    struct api_budget_request *s = api_request_new(req, struct api_budget_request);

    s->req = req;
    s->api = api;
    bool theirs = str_eq(gateway_visible_owner(req), STORE_ANY_OWNER) || str_eq(gateway_visible_owner(req), name);
    if (theirs && store_owner_valid(name) && str_copy(s->row.owner, sizeof(s->row.owner), name))
        return s;
    http_refuse(req, ERR_MISSING, "there is no such tenant");
    return NULL;
}

static void api_budget_get(struct http_req *req, void *ctx)
{
    struct api_budget_request *s = api_budget_new_request(req, ctx);

    if (s)
        store_tenant_get(s->api->settings.store, s->row.owner, api_budget_on_tenant, s);
}

/* --- setting --- */

static int api_budget_read_period(const json_t *body, int p, struct store_budget *row, struct err *err)
{
    auto_free char *path = str_printf("%s.", api_budget_periods[p]);
    json_t *object = NULL;

    if (json_input_object(body, "", api_budget_periods[p], &object, err) < 0)
        return -1;
    if (!object)
        return 0;
    if (json_input_require_known_fields(object, path, api_budget_figures, err) < 0)
        return -1;
    for (int k = 0; k < STORE_BUDGET_RESOURCES; k++)
        if (json_input_u64(object, path, api_budget_figures[k], 1, MAX_UNITS, &row->max[p][k], NULL, err) < 0)
            return -1;
    return 0;
}

/* Records for example "day.executions": 5. A limit that is absent from the record was removed. */
static void api_budget_record(const struct api_budget_request *s)
{
    for (int p = 0; p < STORE_PERIOD_COUNT; p++)
        for (int k = 0; k < STORE_BUDGET_RESOURCES; k++)
            if (s->row.max[p][k]) {
                auto_free char *name = str_printf("%s.%s", api_budget_periods[p], api_budget_figures[k]);

                audit_trail_add_number(s->req, name, s->row.max[p][k]);
            }
}

static void api_budget_put(struct http_req *req, void *ctx)
{
    struct api_budget_request *s = api_budget_new_request(req, ctx);
    auto_json *body = NULL;
    struct err err = { 0 };

    if (!s)
        return;
    s->is_put = true;
    s->row.updated_ms = clock_real_ms();
    if (api_read_body(req, &body, &err) < 0 ||
        json_input_require_known_fields(body, "", api_budget_periods, &err) < 0 ||
        api_budget_read_period(body, STORE_PERIOD_DAY, &s->row, &err) < 0 ||
        api_budget_read_period(body, STORE_PERIOD_MONTH, &s->row, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    api_budget_record(s);
    store_tenant_get(s->api->settings.store, s->row.owner, api_budget_on_tenant, s);
}

const struct http_route budget_routes[] = {
    { "GET", "/v1/tenants/{tenant}/budget", api_budget_get, HTTP_BODY_NONE, .data = &permission_usage },
    { "PUT", "/v1/tenants/{tenant}/budget", api_budget_put, HTTP_BODY_BUFFERED, 16 * KIB, "application/json",
      &permission_admin },
    { 0 },
};
