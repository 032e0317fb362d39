/* cove logs and cove ps: list executions and print their output. The server stores output with
 * offsets, also for ended sandboxes. */
#include "client/ctl/ctl_internal.h"

#include "core/base/clock.h"
#include "core/base/str.h"
#include "client/cli/explain.h"
#include "client/cli/report.h"

#include <stdio.h>
#include <unistd.h>

struct ctl_logs_copy {
    struct ctl_follow *f;
    int fd;
    struct err *err;
};

static bool ctl_logs_copy_bytes(void *arg, const void *data, size_t len)
{
    struct ctl_logs_copy *c = arg;
    const char *p = data;

    while (len) {
        ssize_t n = write(c->fd, p, len);

        if (n < 0) {
            err_sys(c->err, ERR_SYS, "standard output");
            return false;
        }
        p += n;
        len -= (size_t)n;
    }
    return true;
}

static int ctl_logs_newest_execution(struct ctl *c, const char *sandbox, char **ret, struct err *err)
{
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/executions?limit=1", sandbox);
    AUTO_JSON *answer = NULL;

    if (client_json(c->client, "GET", path, NULL, &answer, err) < 0)
        return -1;
    const json_t *first = json_array_get(json_object_get(answer, "items"), 0);
    if (!first)
        return err_set(err, ERR_MISSING, "no execution in %.40s; 'cove exec' starts one", sandbox);
    *ret = str_dup(ctl_field_text(first, "id"));
    return 0;
}

static int ctl_logs_copy_output(struct ctl *c, const char *sandbox, const char *execution, struct err *err)
{
    for (int channel = 1; channel <= 2; channel++) {
        auto_free char *base = ctl_api_path("/v1/sandboxes/%s/executions/%s/output", sandbox, execution);
        auto_free char *path = str_printf("%s?stream=%s", base, channel == 1 ? "stdout" : "stderr");
        struct ctl_logs_copy to = { .fd = channel == 1 ? STDOUT_FILENO : STDERR_FILENO, .err = err };

        if (client_download(c->client, path, ctl_logs_copy_bytes, &to, err) < 0)
            return -1;
    }
    return 0;
}

/* Prints a note if the program was ended or never started. */
static void ctl_logs_note_reason(const struct ctl *c, const json_t *execution)
{
    const json_t *why = json_object_get(execution, "error");

    if (!why)
        ctl_note_end(c, execution);
    else if (!c->quiet)
        report_note("%s: %.220s [%s]",
                    *ctl_field_text(execution, "startedAt") ? "it did not complete" : "it never started",
                    ctl_field_text(why, "message"), ctl_field_text(why, "code"));
}

static int ctl_logs_print_receipt(struct ctl *c, const char *sandbox, const char *execution, struct err *err)
{
    AUTO_JSON *answer = NULL;
    auto_buf in = { 0 }, out = { 0 };

    if (ctl_receipt_fetch(c, sandbox, execution, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    auto_free char *text = json_dumps(answer, JSON_COMPACT | JSON_PRESERVE_ORDER);
    buf_adds(&in, text);
    return explain_receipt(&in, &out, err) < 0 ? -1 : report_text(&out);
}

static int ctl_logs_print_output(struct ctl *c, const char *sandbox, const char *execution, struct err *err)
{
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/executions/%s", sandbox, execution);
    AUTO_JSON *answer = NULL;

    if (client_json(c->client, "GET", path, NULL, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    if (ctl_logs_copy_output(c, sandbox, execution, err) < 0)
        return -1;
    ctl_logs_note_reason(c, answer);
    return 0;
}

static int ctl_logs_follow_output(struct ctl *c, char *sandbox, char *execution, struct err *err)
{
    struct ctl_follow f = { .c = c, .sandbox = sandbox, .execution = execution };
    int bad = ctl_follow(&f, err);

    if (!bad)
        ctl_logs_note_reason(c, f.ended_execution);
    json_decref(f.ended_execution);
    return bad;
}

int ctl_logs(struct ctl *c, struct err *err)
{
    bool follow = args_find(&c->args, OPT_FOLLOW) != NULL, wants_receipt = args_find(&c->args, OPT_RECEIPT) != NULL;
    auto_free char *sandbox = NULL, *execution = NULL;

    if (ctl_require_args(c, 1, 2, "logs [-f | --receipt] SANDBOX [EXECUTION]", err) < 0)
        return -1;
    if (follow && (c->json || wants_receipt))
        return err_set(err, ERR_USAGE, "-f and --receipt or --json exclude each other: those print only once");
    if (ctl_resolve_sandbox(c, c->args.rest[0], &sandbox, err) < 0)
        return -1;
    if (c->args.nrest == 2)
        execution = str_dup(c->args.rest[1]);
    else if (ctl_logs_newest_execution(c, sandbox, &execution, err) < 0)
        return -1;
    if (wants_receipt)
        return ctl_logs_print_receipt(c, sandbox, execution, err);
    return follow ? ctl_logs_follow_output(c, sandbox, execution, err)
                  : ctl_logs_print_output(c, sandbox, execution, err);
}

struct ctl_ps_listing {
    struct ctl_table table;
    uint64_t now_ms;
    json_t *items;
};

static void ctl_ps_add_row(void *arg, const json_t *x)
{
    struct ctl_ps_listing *p = arg;
    const char *by = ctl_field_text(x, "endedBy"), *outcome = ctl_field_text(x, "outcome");
    char created[CTL_AGE];

    if (!*by) /* it never started */
        by = ctl_field_text(json_object_get(x, "error"), "code");
    json_array_append(p->items, (json_t *)(uintptr_t)x);
    ctl_table_row(&p->table, ctl_field_text(x, "id"), ctl_field_text(x, "sandboxId"), ctl_field_text(x, "state"),
                  ctl_age(ctl_field_text(x, "createdAt"), p->now_ms, created), *outcome ? outcome : "-",
                  *by ? by : "-");
}

/* The path of the list with its filters. */
static int ctl_ps_path(struct ctl *c, struct buf *out, struct err *err)
{
    static const struct {
        int opt;
        const char *form;
    } filters[] = { { OPT_STATE, "state=%s" }, { OPT_OUTCOME, "outcome=%s" } };
    bool all = args_find(&c->args, OPT_STATE) || args_find(&c->args, OPT_OUTCOME) || args_find(&c->args, OPT_ALL);
    char separator = all ? '?' : '&';

    buf_addf(out, "/v1/executions%s", all ? "" : "?state=!ended");
    for (size_t i = 0; i < c->args.n; i++)
        for (size_t k = 0; k < ARRAY_LEN(filters); k++)
            if (c->args.items[i].opt->id == filters[k].opt) {
                auto_free char *pair = ctl_api_path(filters[k].form, c->args.items[i].value);

                buf_addf(out, "%c%s", separator, pair);
                separator = '&';
            }
    if (c->args.nrest == 1) {
        auto_free char *sandbox = NULL;

        if (ctl_resolve_sandbox(c, c->args.rest[0], &sandbox, err) < 0)
            return -1;
        buf_addf(out, "%csandboxId=%s", separator, sandbox);
    }
    return 0;
}

int ctl_ps(struct ctl *c, struct err *err)
{
    struct ctl_ps_listing p = { .now_ms = clock_real_ms(), .items = json_array() };
    AUTO_JSON *whole = json_pack("{s:o}", "items", p.items);
    auto_buf path = { 0 };

    if (ctl_require_args(c, 0, 1, "ps [FLAGS] [SANDBOX]", err) < 0 || ctl_ps_path(c, &path, err) < 0)
        return -1;
    ctl_table_row(&p.table, "execution", "sandbox", "state", "created", "outcome", "ended by");
    int bad = ctl_for_each_item(c, path.data, ctl_ps_add_row, &p, err);
    if (!bad && !c->json)
        return ctl_table_print(&p.table);
    ctl_table_free(&p.table);
    return bad ? -1 : ctl_print_json(whole);
}
