/* /v1/usage: what was used, by the hour, as JSON or as a table for spreadsheets.
 *
 * Figures are sums of whole hours (store/usage.h). Before they are summed, the manager tells the store what living
 * sandboxes used by now, so the answer is as of this moment. Times are read in three forms, since people ask for
 * "2026-11-01" and programs for a moment. */
#include "api/inside.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include "store/usage.h"

#include <stdio.h>

#define DAY_MS (24 * STORE_HOUR_MS)

struct report {
    struct http_req *req;
    bool csv;
    struct store_usage_query q;
};

static const struct {
    const char *name;
    unsigned bit;
} groups[] = { { "hour", STORE_USAGE_BY_HOUR },
               { "tenant", STORE_USAGE_BY_TENANT },
               { "user", STORE_USAGE_BY_USER },
               { "sandbox", STORE_USAGE_BY_SANDBOX } };

/* --- what was asked --- */

static int read_groups(const char *text, unsigned *ret, struct err *err)
{
    *ret = 0;
    if (text && !*text)
        return 0;
    while (text) {
        size_t len = strcspn(text, ","), i = 0;

        while (i < ARRAY_LEN(groups) && (strlen(groups[i].name) != len || memcmp(groups[i].name, text, len) != 0))
            i++;
        if (i == ARRAY_LEN(groups))
            return err_set(err, ERR_INVALID, "group: hour, tenant, user and sandbox, separated by commas");
        *ret |= groups[i].bit;
        text = text[len] ? text + len + 1 : NULL;
    }
    return 0;
}

static bool parse_moment(const char *text, uint64_t *ret_ms)
{
    char whole[32];

    if (strlen(text) != 10)
        return clock_from_rfc3339(text, ret_ms);
    snprintf(whole, sizeof(whole), "%sT00:00:00Z", text);
    return clock_from_rfc3339(whole, ret_ms);
}

static int read_moment(const struct http_req *req, const char *name, uint64_t preset, uint64_t *ret, struct err *err)
{
    const char *text = http_query(req, name);

    *ret = preset;
    if (!text || parse_moment(text, ret))
        return 0;
    return err_set(err, ERR_INVALID, "%s: a day such as 2027-01-31, or a moment such as 2027-01-31T00:00:00Z", name);
}

static int read_form(struct report *r, struct err *err)
{
    const char *format = http_query(r->req, "format");

    r->csv = http_wants(r->req, "text/csv");
    if (!format)
        return 0;
    r->csv = str_eq(format, "csv");
    return r->csv || str_eq(format, "json") ? 0 : err_set(err, ERR_INVALID, "format: json or csv");
}

static int read_request(struct report *r, struct err *err)
{
    static const char *const names[] = { "from", "to", "group", "sandbox", "user", "tenant", "format", NULL };
    uint64_t now = clock_real_ns() / NS_PER_MS;
    const char *tenant = http_query(r->req, "tenant");

    r->q = (struct store_usage_query){ .owner = api_sees(r->req),
                                       .now_ms = now,
                                       .sandbox = http_query(r->req, "sandbox"),
                                       .created_by = http_query(r->req, "user") };
    if (http_query_only(r->req, names, err) < 0 || read_form(r, err) < 0 ||
        read_groups(http_query(r->req, "group"), &r->q.by, err) < 0 ||
        read_moment(r->req, "to", now, &r->q.to_ms, err) < 0 ||
        read_moment(r->req, "from", r->q.to_ms > DAY_MS ? r->q.to_ms - DAY_MS : 0, &r->q.from_ms, err) < 0)
        return -1;
    if (r->q.sandbox && !id_valid(r->q.sandbox, "sb"))
        return err_set(err, ERR_MISSING, "there is no such sandbox");
    if (r->q.from_ms > r->q.to_ms)
        return err_set(err, ERR_INVALID, "from: it is later than to");
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

/* Thousandths as decimals: seconds of milliseconds. */
static void thousandths(struct buf *out, uint64_t v)
{
    buf_addf(out, "%" PRIu64 ".%03" PRIu64, v / 1000, v % 1000);
}

static const struct figure_of {
    const char *name;
    size_t at;
    uint64_t unit; /* to thousandths; 0: a whole number */
} figures[] = {
    { "executions", offsetof(struct store_usage, executions), 0 },
    { "failedExecutions", offsetof(struct store_usage, failed), 0 },
    { "cpuSeconds", offsetof(struct store_usage, cpu_us), 1000 },
    { "executionSeconds", offsetof(struct store_usage, execution_ms), 1 },
    { "sandboxSeconds", offsetof(struct store_usage, sandbox_ms), 1 },
    { "memoryMibSeconds", offsetof(struct store_usage, memory_mib_ms), 1 },
    { "storageMibSeconds", offsetof(struct store_usage, storage_mib_ms), 1 },
    { "memoryPeakBytes", offsetof(struct store_usage, memory_peak), 0 },
    { "outputBytes", offsetof(struct store_usage, output_bytes), 0 },
};

static void put_figure(struct buf *out, const struct store_usage *u, const struct figure_of *f)
{
    uint64_t v = *(const uint64_t *)(const void *)((const char *)u + f->at);

    if (f->unit)
        thousandths(out, v / f->unit);
    else
        buf_addf(out, "%" PRIu64, v);
}

static void json_figures(struct jsonw *w, const struct store_usage *u)
{
    for (size_t i = 0; i < ARRAY_LEN(figures); i++) {
        auto_buf text = { 0 };

        put_figure(&text, u, &figures[i]);
        api_raw(w, figures[i].name, text.data);
    }
}

static const char *key_of(const struct store_usage *u, unsigned bit, char stamp[32])
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

static void json_row(struct jsonw *w, unsigned by, const struct store_usage *u)
{
    char stamp[32];

    jsonw_object(w);
    for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
        const char *key = key_of(u, groups[i].bit, stamp);

        if ((by & groups[i].bit) && *key)
            jsonw_kstr(w, groups[i].bit == STORE_USAGE_BY_SANDBOX ? "sandboxId" : groups[i].name, key);
    }
    json_figures(w, u);
    jsonw_end_object(w);
}

static void answer_json(struct report *r, const struct store_usage *rows, size_t n)
{
    struct store_usage total = { 0 };
    struct buf out = { 0 };
    struct jsonw w;
    char stamp[32];

    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "from", clock_rfc3339_ms(r->q.from_ms, stamp)); /* also 1970 */
    jsonw_kstr(&w, "to", clock_rfc3339_ms(r->q.to_ms, stamp));
    jsonw_key(&w, "usage");
    jsonw_array(&w);
    for (size_t i = 0; i < n; i++) {
        json_row(&w, r->q.by, &rows[i]);
        for (size_t k = 0; k < ARRAY_LEN(figures); k++) {
            uint64_t *sum = (uint64_t *)(void *)((char *)&total + figures[k].at);
            uint64_t v = *(const uint64_t *)(const void *)((const char *)&rows[i] + figures[k].at);

            *sum = figures[k].at == offsetof(struct store_usage, memory_peak) ? max_u64(*sum, v) : *sum + v;
        }
    }
    jsonw_end_array(&w);
    jsonw_key(&w, "total");
    jsonw_object(&w);
    json_figures(&w, &total);
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    http_answer_json(r->req, 200, &out);
}

/* No field can hold a comma, a quote or the beginning of a formula: they are times, names by store_owner_valid, ids and
 * numbers. */
static void answer_csv(struct report *r, const struct store_usage *rows, size_t n)
{
    auto_buf out = { 0 };
    const char *comma = "";
    char stamp[32];

    for (size_t k = 0; k < ARRAY_LEN(groups); k++)
        if (r->q.by & groups[k].bit)
            buf_addf(&out, "%s,", groups[k].bit == STORE_USAGE_BY_SANDBOX ? "sandboxId" : groups[k].name);
    for (size_t k = 0; k < ARRAY_LEN(figures); k++, comma = ",")
        buf_addf(&out, "%s%s", comma, figures[k].name);
    buf_adds(&out, "\r\n");
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < ARRAY_LEN(groups); k++)
            if (r->q.by & groups[k].bit)
                buf_addf(&out, "%s,", key_of(&rows[i], groups[k].bit, stamp));
        comma = "";
        for (size_t k = 0; k < ARRAY_LEN(figures); k++, comma = ",") {
            buf_adds(&out, comma);
            put_figure(&out, &rows[i], &figures[k]);
        }
        buf_adds(&out, "\r\n");
    }
    http_answer(r->req, 200, "text/csv; charset=utf-8", out.data, out.len);
}

static void on_usage(void *arg, const struct err *err, const struct store_usage *rows, size_t n, bool more)
{
    auto_free struct report *r = arg;
    struct err many;

    if (!err && more) {
        err_set(&many, ERR_INVALID, "that is more than %u rows: ask for less time, or for fewer groups",
                STORE_USAGE_MAX);
        err = &many;
    }
    if (err)
        http_answer_err(r->req, err);
    else if (r->csv)
        answer_csv(r, rows, n);
    else
        answer_json(r, rows, n);
}

static void usage(struct http_req *req, void *ctx)
{
    struct api *api = ctx;
    struct report *r = mem_new(struct report);
    struct err err = { 0 };

    r->req = req;
    if (read_request(r, &err) < 0) {
        http_answer_err(req, &err);
        free(r);
        return;
    }
    manager_note_usage(api->set.manager, r->q.owner);
    store_usage_list(api->set.store, &r->q, on_usage, r);
}

const struct http_route usage_routes[] = {
    { "GET", "/v1/usage", usage, HTTP_BODY_NONE, .data = &api_usage },
    { 0 },
};
