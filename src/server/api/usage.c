/* /v1/usage: usage per hour, as JSON or CSV.
 *
 * Figures are sums of whole hours (store/usage.h). Before they are summed, the manager writes the
 * current usage of live sandboxes to the store, so the response is up to date. Times are accepted
 * in three forms, since people write "2026-11-01" and programs an exact time. */
#include "server/api/api_internal.h"
#include "service/live_sandboxes.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "store/usage.h"

#include <stdio.h>

#define DAY_MS (24 * STORE_HOUR_MS)

struct usage_report {
    struct http_req *req;
    bool csv;
    struct store_usage_query q;
};

static const struct {
    const char *name;
    unsigned bit;
} usage_groups[] = { { "hour", STORE_USAGE_BY_HOUR },
                     { "tenant", STORE_USAGE_BY_TENANT },
                     { "user", STORE_USAGE_BY_USER },
                     { "sandbox", STORE_USAGE_BY_SANDBOX } };

/* --- parameters --- */

static int usage_report_read_groups(const char *text, unsigned *ret, struct err *err)
{
    *ret = 0;
    if (text && !*text)
        return 0;
    while (text) {
        size_t len = strcspn(text, ","), i = 0;

        while (i < ARRAY_LEN(usage_groups) &&
               (strlen(usage_groups[i].name) != len || memcmp(usage_groups[i].name, text, len) != 0))
            i++;
        if (i == ARRAY_LEN(usage_groups))
            return err_set(err, ERR_INVALID,
                           "group: must be a list of hour, tenant, user and sandbox, separated by commas");
        *ret |= usage_groups[i].bit;
        text = text[len] ? text + len + 1 : NULL;
    }
    return 0;
}

static bool usage_parse_time(const char *text, uint64_t *ret_ms)
{
    char whole[32];

    if (strlen(text) != 10)
        return clock_from_rfc3339(text, ret_ms);
    snprintf(whole, sizeof(whole), "%sT00:00:00Z", text);
    return clock_from_rfc3339(whole, ret_ms);
}

static int usage_report_read_time(const struct http_req *req, const char *name, uint64_t preset, uint64_t *ret,
                                  struct err *err)
{
    const char *text = http_query(req, name);

    *ret = preset;
    if (!text || usage_parse_time(text, ret))
        return 0;
    return err_set(err, ERR_INVALID, "%s: must be a day such as 2027-01-31, or a time such as 2027-01-31T00:00:00Z",
                   name);
}

static int usage_report_read_format(struct usage_report *r, struct err *err)
{
    const char *format = http_query(r->req, "format");

    r->csv = http_prefers_type(r->req, "text/csv");
    if (!format)
        return 0;
    r->csv = str_eq(format, "csv");
    return r->csv || str_eq(format, "json") ? 0 : err_set(err, ERR_INVALID, "format: must be json or csv");
}

static int usage_report_read(struct usage_report *r, struct err *err)
{
    static const char *const names[] = { "from", "to", "group", "sandbox", "user", "tenant", "format", NULL };
    uint64_t now = clock_real_ms();
    const char *tenant = http_query(r->req, "tenant");

    r->q = (struct store_usage_query){ .owner = gateway_visible_owner(r->req),
                                       .now_ms = now,
                                       .sandbox = http_query(r->req, "sandbox"),
                                       .created_by = http_query(r->req, "user") };
    if (http_query_require_known(r->req, names, err) < 0 || usage_report_read_format(r, err) < 0 ||
        usage_report_read_groups(http_query(r->req, "group"), &r->q.by, err) < 0 ||
        usage_report_read_time(r->req, "to", now, &r->q.to_ms, err) < 0 ||
        usage_report_read_time(r->req, "from", r->q.to_ms > DAY_MS ? r->q.to_ms - DAY_MS : 0, &r->q.from_ms, err) < 0)
        return -1;
    if (r->q.sandbox && !id_valid(r->q.sandbox, "sb"))
        return err_set(err, ERR_MISSING, "there is no such sandbox");
    if (r->q.from_ms > r->q.to_ms)
        return err_set(err, ERR_INVALID, "from: must not be later than to");
    r->q.from_ms = r->q.from_ms / STORE_HOUR_MS * STORE_HOUR_MS;
    r->q.to_ms = (r->q.to_ms + STORE_HOUR_MS - 1) / STORE_HOUR_MS * STORE_HOUR_MS;
    if (tenant && !str_eq(r->q.owner, STORE_ANY_OWNER) && !str_eq(r->q.owner, tenant))
        return err_set(err, ERR_MISSING, "there is no such tenant");
    if (tenant && !store_owner_valid(tenant))
        return err_set(err, ERR_MISSING, "there is no such tenant");
    if (tenant)
        r->q.owner = tenant;
    return 0;
}

/* --- figures --- */

static const struct usage_figure {
    const char *name;
    size_t at;
    bool in_thousandths; /* stored in us or MiB ms, written in ms or MiB s */
} usage_figures[] = {
    { "executions", offsetof(struct store_usage, executions), false },
    { "failedExecutions", offsetof(struct store_usage, failed), false },
    { "cpuMs", offsetof(struct store_usage, cpu_us), true },
    { "executionMs", offsetof(struct store_usage, execution_ms), false },
    { "sandboxMs", offsetof(struct store_usage, sandbox_ms), false },
    { "memoryMibSeconds", offsetof(struct store_usage, memory_mib_ms), true },
    { "storageMibSeconds", offsetof(struct store_usage, storage_mib_ms), true },
    { "memoryPeakBytes", offsetof(struct store_usage, memory_peak), false },
    { "outputBytes", offsetof(struct store_usage, output_bytes), false },
};

static void usage_write_figure(struct buf *out, const struct store_usage *u, const struct usage_figure *f)
{
    uint64_t v = *(const uint64_t *)(const void *)((const char *)u + f->at);

    if (f->in_thousandths)
        buf_addf(out, "%" PRIu64 ".%03" PRIu64, v / 1000, v % 1000);
    else
        buf_addf(out, "%" PRIu64, v);
}

static void usage_write_json_figures(struct jsonw *w, const struct store_usage *u)
{
    for (size_t i = 0; i < ARRAY_LEN(usage_figures); i++) {
        auto_buf text = { 0 };

        usage_write_figure(&text, u, &usage_figures[i]);
        api_write_raw_json(w, usage_figures[i].name, text.data);
    }
}

static const char *usage_group_key(const struct store_usage *u, unsigned bit, char stamp[32])
{
    switch (bit) {
    case STORE_USAGE_BY_HOUR:
        return clock_rfc3339_ms(u->hour_ms, stamp);
    case STORE_USAGE_BY_TENANT:
        return u->owner;
    case STORE_USAGE_BY_USER:
        return u->created_by[0] ? u->created_by : AUTH_LOCAL_OWNER;
    default:
        return u->sandbox;
    }
}

static void usage_write_json_row(struct jsonw *w, unsigned by, const struct store_usage *u)
{
    char stamp[32];

    jsonw_object(w);
    for (size_t i = 0; i < ARRAY_LEN(usage_groups); i++) {
        const char *key = usage_group_key(u, usage_groups[i].bit, stamp);

        if ((by & usage_groups[i].bit) && *key)
            jsonw_kstr(w, usage_groups[i].bit == STORE_USAGE_BY_SANDBOX ? "sandboxId" : usage_groups[i].name, key);
    }
    usage_write_json_figures(w, u);
    jsonw_end_object(w);
}

static void usage_report_answer_json(struct usage_report *r, const struct store_usage *rows, size_t n)
{
    struct store_usage total = { 0 };
    struct buf out = { 0 };
    struct jsonw w;
    char stamp[32];

    api_object_begin(&w, &out);
    jsonw_kstr(&w, "from", clock_rfc3339_ms(r->q.from_ms, stamp)); /* also for 1970 */
    jsonw_kstr(&w, "to", clock_rfc3339_ms(r->q.to_ms, stamp));
    jsonw_karray(&w, "usage");
    for (size_t i = 0; i < n; i++) {
        usage_write_json_row(&w, r->q.by, &rows[i]);
        for (size_t k = 0; k < ARRAY_LEN(usage_figures); k++) {
            uint64_t *sum = (uint64_t *)(void *)((char *)&total + usage_figures[k].at);
            uint64_t v = *(const uint64_t *)(const void *)((const char *)&rows[i] + usage_figures[k].at);

            *sum = usage_figures[k].at == offsetof(struct store_usage, memory_peak) ? max_u64(*sum, v) : *sum + v;
        }
    }
    jsonw_end_array(&w);
    jsonw_kobject(&w, "total");
    usage_write_json_figures(&w, &total);
    jsonw_end_object(&w);
    api_object_end(r->req, 200, &w);
}

/* No field can contain a comma, a quote or the start of a formula: fields are times, names checked
 * by store_owner_valid, ids and numbers. */
static void usage_report_answer_csv(struct usage_report *r, const struct store_usage *rows, size_t n)
{
    auto_buf out = { 0 };
    const char *comma = "";
    char stamp[32];

    for (size_t k = 0; k < ARRAY_LEN(usage_groups); k++)
        if (r->q.by & usage_groups[k].bit)
            buf_addf(&out, "%s,", usage_groups[k].bit == STORE_USAGE_BY_SANDBOX ? "sandboxId" : usage_groups[k].name);
    for (size_t k = 0; k < ARRAY_LEN(usage_figures); k++, comma = ",")
        buf_addf(&out, "%s%s", comma, usage_figures[k].name);
    buf_adds(&out, "\r\n");
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < ARRAY_LEN(usage_groups); k++)
            if (r->q.by & usage_groups[k].bit)
                buf_addf(&out, "%s,", usage_group_key(&rows[i], usage_groups[k].bit, stamp));
        comma = "";
        for (size_t k = 0; k < ARRAY_LEN(usage_figures); k++, comma = ",") {
            buf_adds(&out, comma);
            usage_write_figure(&out, &rows[i], &usage_figures[k]);
        }
        buf_adds(&out, "\r\n");
    }
    http_answer(r->req, 200, "text/csv; charset=utf-8", out.data, out.len);
}

static void usage_report_on_rows(void *arg, const struct err *err, const struct store_usage *rows, size_t n, bool more)
{
    struct usage_report *r = arg;
    struct err many;

    if (!err && more) {
        err_set(&many, ERR_INVALID, "more than %u rows; request a shorter time or fewer groups", STORE_USAGE_MAX);
        err = &many;
    }
    if (err)
        http_answer_err(r->req, err);
    else if (r->csv)
        usage_report_answer_csv(r, rows, n);
    else
        usage_report_answer_json(r, rows, n);
}

static void api_usage_report(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct usage_report *r = api_request_new(req, struct usage_report);
    struct err err = { 0 };

    r->req = req;
    if (usage_report_read(r, &err) < 0) {
        http_answer_err(req, &err);
        return;
    }
    live_sandboxes_commit_cpu(manager_live_sandboxes(api->settings.manager), r->q.owner);
    store_usage_list(api->settings.store, &r->q, usage_report_on_rows, r);
}

const struct http_route usage_routes[] = {
    { "GET", "/v1/usage", api_usage_report, HTTP_BODY_NONE, .data = &permission_usage },
    { 0 },
};
