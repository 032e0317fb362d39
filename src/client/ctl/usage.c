/* cove usage: prints usage as a table, or as the CSV or JSON of the server. */
#include "client/ctl/ctl_internal.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/fetch/fetch.h"

#include <stdio.h>
#include <unistd.h>

static void ctl_usage_add_query(struct buf *out, const char *name, const char *value)
{
    auto_free char *escaped = fetch_escape(value);

    buf_addf(out, "%s%s=%s", out->len ? "&" : "?", name, escaped);
}

/* "7d" is a duration ago; a date or a time is sent to the server unchanged. */
static int ctl_usage_add_moment(const struct ctl *c, int opt, const char *name, struct buf *out, struct err *err)
{
    const struct arg *a = args_find(&c->args, opt);
    uint64_t ago, now = clock_real_ms();
    char text[32];

    if (!a)
        return 0;
    if (strchr(a->value, '-')) {
        ctl_usage_add_query(out, name, a->value);
        return 0;
    }
    if (!str_to_ms(a->value, &ago) || ago > now)
        return err_set(err, ERR_USAGE,
                       "--%s %.40s: must be a duration ago, such as 12h or 7d, or a date such as 2027-01-31", name,
                       a->value);
    ctl_usage_add_query(out, name, clock_rfc3339((now - ago) * NS_PER_MS, text));
    return 0;
}

static char *ctl_usage_make_path(const struct ctl *c, const char *sandbox, struct err *err)
{
    static const struct {
        int opt;
        const char *name;
    } plain[] = { { OPT_BY, "group" }, { OPT_TENANT, "tenant" }, { OPT_OF_USER, "user" } };
    auto_buf query = { 0 };

    if (ctl_usage_add_moment(c, OPT_FROM, "from", &query, err) < 0 ||
        ctl_usage_add_moment(c, OPT_TO, "to", &query, err) < 0)
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
        const struct arg *a = args_find(&c->args, plain[i].opt);

        if (a)
            ctl_usage_add_query(&query, plain[i].name, a->value);
    }
    if (sandbox)
        ctl_usage_add_query(&query, "sandbox", sandbox);
    if (args_find(&c->args, OPT_CSV))
        ctl_usage_add_query(&query, "format", "csv");
    return str_printf("/v1/usage%s", query.len ? query.data : "");
}

/* --- table --- */

static const char *ctl_usage_duration_text(const json_t *row, const char *key, char buf[32])
{
    double s = json_number_value(json_object_get(row, key)) / 1000;

    if (s < 600)
        snprintf(buf, 32, "%.1fs", s);
    else
        snprintf(buf, 32, "%.2fh", s / 3600);
    return buf;
}

static const char *ctl_usage_gib_hours_text(const json_t *row, const char *key, char buf[32])
{
    snprintf(buf, 32, "%.3f", json_number_value(json_object_get(row, key)) / 1024 / 3600);
    return buf;
}

static void ctl_usage_add_row(struct ctl_table *t, const json_t *row, const char *const *keys, bool total)
{
    const char *cells[16] = { NULL };
    char executions[24], cpu[32], alive[32], memory[32], storage[32], output[32], hour[24];
    size_t n = 0;

    for (size_t i = 0; keys[i]; i++) {
        const char *text = ctl_field_text(row, keys[i]);

        if (str_eq(keys[i], "hour") && !total) {
            snprintf(hour, sizeof(hour), "%.13s:00", text);
            text = hour;
        }
        cells[n++] = total ? (i == 0 ? "total" : "") : *text ? text : "-";
    }
    snprintf(executions, sizeof(executions), "%" PRIu64, ctl_field_number(row, "executions"));
    cells[n++] = executions;
    cells[n++] = ctl_usage_duration_text(row, "cpuMs", cpu);
    cells[n++] = ctl_usage_duration_text(row, "sandboxMs", alive);
    cells[n++] = ctl_usage_gib_hours_text(row, "memoryMibSeconds", memory);
    cells[n++] = ctl_usage_gib_hours_text(row, "storageMibSeconds", storage);
    cells[n++] = str_bytes(ctl_field_number(row, "outputBytes"), output);
    ctl_table_add_row(t, cells);
}

static int ctl_usage_print(const json_t *answer)
{
    static const char *const all[] = { "hour", "tenant", "user", "sandboxId" };
    const json_t *rows = json_object_get(answer, "usage"), *row, *first = json_array_get(rows, 0);
    const char *keys[5] = { NULL }, *head[16] = { NULL };
    struct ctl_table t = { 0 };
    size_t n = 0, i;

    for (i = 0; i < ARRAY_LEN(all); i++)
        if (json_object_get(first, all[i]))
            keys[n++] = all[i];
    memcpy(head, keys, n * sizeof(*keys));
    for (i = 0; i < n; i++)
        if (str_eq(head[i], "sandboxId"))
            head[i] = "sandbox";
    memcpy(&head[n],
           (const char *const[]){ "executions", "cpu", "lifetime", "memory GiB-h", "storage GiB-h", "output" },
           6 * sizeof(*head));
    ctl_table_add_row(&t, head);
    json_array_foreach(rows, i, row) ctl_usage_add_row(&t, row, keys, false);
    if (n > 0 || json_array_size(rows) == 0)
        ctl_usage_add_row(&t, json_object_get(answer, "total"), keys, true);
    return ctl_table_print(&t);
}

static bool ctl_usage_copy_out(void *arg, const void *data, size_t len)
{
    if (fd_write_all(STDOUT_FILENO, data, len) == 0)
        return true;
    err_sys(arg, ERR_SYS, "standard output");
    return false;
}

int ctl_usage(struct ctl *c, struct err *err)
{
    auto_free char *sandbox = NULL;
    AUTO_JSON *answer = NULL;

    if (ctl_require_args(c, 0, 1, "usage [FLAGS] [SANDBOX]", err) < 0)
        return -1;
    if (c->args.nrest == 1 && ctl_resolve_sandbox(c, c->args.rest[0], &sandbox, err) < 0)
        return -1;
    auto_free char *path = ctl_usage_make_path(c, sandbox, err);
    if (!path)
        return -1;
    if (args_find(&c->args, OPT_CSV))
        return client_download(c->client, path, ctl_usage_copy_out, err, err);
    if (client_json(c->client, "GET", path, NULL, &answer, err) < 0)
        return -1;
    return c->json ? ctl_print_json(answer) : ctl_usage_print(answer);
}
