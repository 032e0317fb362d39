/* cove budget: get, set, clear. The server replaces a budget as a whole, but the command
 * changes single bounds, so `set` reads the budget and writes it back with the change. Two
 * operators that change the same tenant at the same time may overwrite each other; the answer
 * shows the stored budget. */
#include "client/ctl/ctl_internal.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "client/cli/report.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const budget_periods[] = { "day", "month" };

static const struct {
    int opt;
    const char *key, *word;
    bool time;
} budget_figures[] = {
    { OPT_BUDGET_CPU, "cpuMs", "processor time", true },
    { OPT_BUDGET_ALIVE, "sandboxMs", "lifetime", true },
    { OPT_MAX_EXECUTIONS, "executions", "executions", false },
};

/* --- printing --- */

static const char *ctl_budget_amount_text(uint64_t v, bool time, char buf[32])
{
    if (!time)
        snprintf(buf, 32, "%" PRIu64, v);
    else if (v < 600 * 1000)
        snprintf(buf, 32, "%.1fs", (double)v / 1000);
    else
        snprintf(buf, 32, "%.2fh", (double)v / 3600 / 1000);
    return buf;
}

static int ctl_budget_print(struct ctl *c, const json_t *b)
{
    struct ctl_table table = { 0 };
    uint64_t now = clock_real_ms();

    if (c->json)
        return ctl_print_json(b);
    ctl_table_row(&table, "resource", "period", "used", "budget", "resets");
    for (size_t p = 0; p < ARRAY_LEN(budget_periods); p++) {
        const json_t *period = json_object_get(b, budget_periods[p]), *used = json_object_get(period, "used");

        for (size_t k = 0; k < ARRAY_LEN(budget_figures); k++) {
            char a[32], max[32], when[CTL_AGE];
            uint64_t limit = ctl_field_number(period, budget_figures[k].key);

            if (limit)
                ctl_table_row(&table, budget_figures[k].word, budget_periods[p],
                              used ? ctl_budget_amount_text(ctl_field_number(used, budget_figures[k].key),
                                                            budget_figures[k].time, a)
                                   : "-",
                              ctl_budget_amount_text(limit, budget_figures[k].time, max),
                              ctl_age(ctl_field_text(period, "renewsAt"), now, when));
        }
    }
    if (table.n <= 5 && !c->quiet)
        report_note("%s has no budget", ctl_field_text(b, "tenant"));
    return ctl_table_print(&table);
}

/* --- get --- */

static char *ctl_budget_path(struct ctl *c, struct err *err)
{
    AUTO_JSON *own = NULL;

    if (c->args.nrest)
        return ctl_api_path("/v1/tenants/%s/budget", c->args.rest[0]);
    if (client_json(c->client, "GET", "/v1/whoami", NULL, &own, err) < 0)
        return NULL;
    return ctl_api_path("/v1/tenants/%s/budget", ctl_field_text(own, "tenant"));
}

static int ctl_budget_get(struct ctl *c, struct err *err)
{
    AUTO_JSON *answer = NULL;

    if (ctl_require_args(c, 0, 1, "budget get [FLAGS] [TENANT]", err) < 0)
        return -1;
    auto_free char *path = ctl_budget_path(c, err);
    if (!path || client_json(c->client, "GET", path, NULL, &answer, err) < 0)
        return -1;
    return ctl_budget_print(c, answer);
}

/* --- set and clear --- */

static int ctl_budget_read_figure(const struct arg *a, bool time, uint64_t *ret, struct err *err)
{
    uint64_t v = 0;
    bool none = str_eq(a->value, "none");

    if (!none && (time ? !str_to_ms(a->value, &v) : !str_to_u64(a->value, INT64_MAX, &v)))
        v = 0;
    if (!none && v == 0)
        return err_set(err, ERR_USAGE, "--%s %.40s: %s above 0, or 'none'", a->opt->name, a->value,
                       time ? "must be a time such as 90s or 10h" : "must be a number");
    *ret = v;
    return 0;
}

static int ctl_budget_read_period(const struct ctl *c, const char **ret, struct err *err)
{
    const struct arg *a = args_find(&c->args, OPT_PER);

    *ret = a ? a->value : NULL;
    if (a && !str_eq(a->value, "day") && !str_eq(a->value, "month"))
        return err_set(err, ERR_USAGE, "--per %.40s: must be day or month", a->value);
    return 0;
}

/* Copies only the bounds of an answer. */
static json_t *ctl_budget_bounds(const json_t *b)
{
    json_t *all = json_object();

    for (size_t p = 0; p < ARRAY_LEN(budget_periods); p++) {
        json_t *bounds = json_object();

        for (size_t k = 0; k < ARRAY_LEN(budget_figures); k++) {
            uint64_t v = ctl_field_number(json_object_get(b, budget_periods[p]), budget_figures[k].key);

            if (v)
                json_object_set_new(bounds, budget_figures[k].key, json_integer((json_int_t)v));
        }
        json_object_set_new(all, budget_periods[p], bounds);
    }
    return all;
}

static int ctl_budget_apply_flags(const struct ctl *c, json_t *bounds, struct err *err)
{
    size_t n = 0;

    for (size_t k = 0; k < ARRAY_LEN(budget_figures); k++) {
        const struct arg *a = args_find(&c->args, budget_figures[k].opt);
        uint64_t v = 0;

        if (!a)
            continue;
        if (ctl_budget_read_figure(a, budget_figures[k].time, &v, err) < 0)
            return -1;
        n++;
        if (v)
            json_object_set_new(bounds, budget_figures[k].key, json_integer((json_int_t)v));
        else
            json_object_del(bounds, budget_figures[k].key);
    }
    return n ? 0 : err_set(err, ERR_USAGE, "no bound given; add --cpu, --alive or --executions");
}

static int ctl_budget_send(struct ctl *c, const char *path, const json_t *bounds, struct err *err)
{
    AUTO_JSON *answer = NULL;
    auto_free char *text = json_dumps(bounds, JSON_COMPACT);

    if (client_json(c->client, "PUT", path, text, &answer, err) < 0)
        return -1;
    return ctl_budget_print(c, answer);
}

static int ctl_budget_set(struct ctl *c, struct err *err)
{
    AUTO_JSON *now = NULL, *bounds = NULL, *trial = json_object();
    const char *per;

    if (ctl_require_args(c, 1, 1, "budget set [FLAGS] TENANT", err) < 0 || ctl_budget_read_period(c, &per, err) < 0 ||
        ctl_budget_apply_flags(c, trial, err) < 0) /* report wrong flags before the first request */
        return -1;
    auto_free char *path = ctl_api_path("/v1/tenants/%s/budget", c->args.rest[0]);
    if (client_json(c->client, "GET", path, NULL, &now, err) < 0)
        return -1;
    bounds = ctl_budget_bounds(now);
    if (ctl_budget_apply_flags(c, json_object_get(bounds, per ? per : "day"), err) < 0)
        return -1;
    return ctl_budget_send(c, path, bounds, err);
}

static int ctl_budget_clear(struct ctl *c, struct err *err)
{
    AUTO_JSON *now = NULL, *bounds = json_object();
    const char *per;

    if (ctl_require_args(c, 1, 1, "budget clear [FLAGS] TENANT", err) < 0 || ctl_budget_read_period(c, &per, err) < 0)
        return -1;
    for (size_t k = 0; k < ARRAY_LEN(budget_figures); k++)
        if (args_find(&c->args, budget_figures[k].opt))
            return err_set(err, ERR_USAGE,
                           "'budget clear' removes all bounds of a period; to remove one bound, use 'budget set' with "
                           "the value none");
    auto_free char *path = ctl_api_path("/v1/tenants/%s/budget", c->args.rest[0]);
    if (per) {
        if (client_json(c->client, "GET", path, NULL, &now, err) < 0)
            return -1;
        json_decref(bounds);
        bounds = ctl_budget_bounds(now);
        json_object_del(bounds, per);
    }
    return ctl_budget_send(c, path, bounds, err);
}

int ctl_budget(struct ctl *c, const char *what, struct err *err)
{
    return str_eq(what, "get")   ? ctl_budget_get(c, err)
           : str_eq(what, "set") ? ctl_budget_set(c, err)
                                 : ctl_budget_clear(c, err);
}
