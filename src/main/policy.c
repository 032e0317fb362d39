/* cove-policy - policy files: check, show, diff, import, why; and compile, with which `cove run
 * --policy FILE` reads a policy file.
 *
 * It is a separate program because it links libyaml: `cove` links only libc, so that a run starts
 * quickly. Exit status: 0 success (diff: equal, why: allowed); 1 different or refused; 2 and 125 as
 * for the errors of `cove`. */
#include "core/base/err.h"
#include "core/base/fd.h"
#include "core/base/jsonw.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/suggest.h"
#include "policy/file/network_decision.h"
#include "policy/file/policy_file.h"
#include "policy/file/policy_rows.h"
#include "policy/file/srt_import.h"
#include "policy/operator_network.h"

#include <stdio.h>

struct policy_command {
    bool json;
    const char *method; /* of `why`; NULL: GET */
    const char *words[4];
    size_t n;
};

static int policy_write_output(int fd, const struct buf *out, int status)
{
    if (out->len && fd_write_all(fd, out->data, out->len) < 0 && status == 0) {
        perror("cove policy: standard output");
        return 125;
    }
    return status;
}

static int policy_report_problems(const struct policy_command *c, struct problems *pr)
{
    auto_buf out = { 0 };
    struct jsonw w;

    if (!c->json) {
        problems_print(pr, &out);
        return policy_write_output(STDERR_FILENO, &out, problems_exit(pr));
    }
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    jsonw_kbool(&w, "ok", false);
    problems_json(pr, &w);
    jsonw_end_object(&w);
    buf_adds(&out, "\n");
    return policy_write_output(STDOUT_FILENO, &out, problems_exit(pr));
}

static int policy_usage_error(const struct policy_command *c, const char *msg)
{
    struct problems pr = { 0 };

    problems_add(&pr, ERR_USAGE, 0, 0, NULL, "%s", msg);
    return policy_report_problems(c, &pr);
}

static int policy_load_checked(const char *name, struct policy *p, struct operator_limits *f, struct problems *pr)
{
    struct err err = { 0 };

    pr->file = name;
    if (policy_file_load(name, p, pr) < 0)
        return -1;
    if (operator_limits_file_load(f, pr) < 0) {
        policy_done(p);
        return -1;
    }
    if (operator_limits_check(f, p, &err) == 0)
        return 0;
    uint32_t line = 0;
    for (unsigned i = 0; i < LIMIT_COUNT; i++) /* if the message names a limit, use the line of that field */
        if (p->limit_line[i] && strstr(err.msg, limit_info((enum limit)i)->name))
            line = p->limit_line[i];
    pr->file = name;
    problems_add(pr, err.id, line, line ? 1 : 0, NULL, "%s", err.msg);
    policy_done(p);
    operator_limits_done(f);
    return -1;
}

static int policy_cmd_check(const struct policy_command *c)
{
    struct policy p;
    struct operator_limits f = { 0 };
    struct problems pr = { 0 };
    auto_buf out = { 0 };

    if (c->n != 2)
        return policy_usage_error(c, "check needs one file; usage: cove policy check FILE");
    if (policy_load_checked(c->words[1], &p, &f, &pr) < 0)
        return policy_report_problems(c, &pr);
    if (c->json)
        buf_adds(&out, "{\"ok\":true,\"errors\":[]}\n");
    else
        buf_addf(&out, "%s: policy %s is valid\n", c->words[1], p.name);
    policy_done(&p);
    operator_limits_done(&f);
    return policy_write_output(STDOUT_FILENO, &out, 0);
}

static int policy_list_builtins(const struct policy_command *c)
{
    const char *const *names = policy_builtins();
    auto_buf out = { 0 };
    struct jsonw w;

    jsonw_init(&w, &out, 0);
    if (c->json) {
        jsonw_object(&w);
        jsonw_key(&w, "policies");
        jsonw_array(&w);
    }
    for (size_t i = 0; names[i]; i++) {
        if (c->json)
            jsonw_str(&w, names[i]);
        else
            buf_addf(&out, "%-10s %s\n", names[i], policy_builtin_summary(names[i]));
    }
    if (c->json) {
        jsonw_end_array(&w);
        jsonw_end_object(&w);
        buf_adds(&out, "\n");
    }
    return policy_write_output(STDOUT_FILENO, &out, 0);
}

static int policy_cmd_show(const struct policy_command *c)
{
    struct policy p;
    struct operator_limits f = { 0 };
    struct problems pr = { 0 };
    struct policy_rows rows;
    auto_buf out = { 0 };

    if (c->n == 1)
        return policy_list_builtins(c);
    if (c->n != 2)
        return policy_usage_error(c, "show takes one policy; usage: cove policy show NAME|FILE");
    if (policy_load_checked(c->words[1], &p, &f, &pr) < 0)
        return policy_report_problems(c, &pr);
    policy_rows_build(&p, &f, &rows);
    if (c->json)
        policy_rows_json(&p, &f, &rows, &out);
    else
        policy_rows_print(&p, &rows, &out);
    policy_rows_done(&rows);
    policy_done(&p);
    operator_limits_done(&f);
    return policy_write_output(STDOUT_FILENO, &out, 0);
}

static int policy_cmd_diff(const struct policy_command *c)
{
    struct policy_rows rows[2];
    auto_buf out = { 0 };

    if (c->n != 3)
        return policy_usage_error(c, "diff needs two policies; usage: cove policy diff A B");
    for (size_t i = 0; i < 2; i++) {
        struct policy p;
        struct operator_limits f = { 0 };
        struct problems pr = { 0 };

        if (policy_load_checked(c->words[1 + i], &p, &f, &pr) < 0) {
            if (i == 1)
                policy_rows_done(&rows[0]);
            return policy_report_problems(c, &pr);
        }
        policy_rows_build(&p, &f, &rows[i]);
        policy_done(&p);
        operator_limits_done(&f);
    }
    size_t n = policy_rows_diff(&rows[0], &rows[1], &out);
    policy_rows_done(&rows[0]);
    policy_rows_done(&rows[1]);
    return policy_write_output(STDOUT_FILENO, &out, n > 0);
}

static int policy_cmd_import(const struct policy_command *c)
{
    struct problems pr = { 0 };
    auto_free char *data = NULL;
    auto_buf out = { 0 }, said = { 0 };
    size_t len;

    if (c->n != 2)
        return policy_usage_error(c, "import needs one file; usage: cove policy import SETTINGS.json");
    pr.file = c->words[1];
    if (policy_file_load_bytes(c->words[1], &data, &len, &pr) < 0)
        return policy_report_problems(c, &pr);
    int lost = srt_import(data, len, c->words[1], &out, &said, &pr);
    if (lost < 0)
        return policy_report_problems(c, &pr);
    buf_addf(&said, "%s: %d setting%s without an equivalent\n", c->words[1], lost, lost == 1 ? "" : "s");
    policy_write_output(STDERR_FILENO, &said, 0);
    return policy_write_output(STDOUT_FILENO, &out, 0);
}

/* For `cove run`: standard output receives the canonical form, or the errors as JSON with
 * --json. */
static int policy_cmd_compile(const struct policy_command *c)
{
    struct policy p;
    struct operator_limits f = { 0 };
    struct problems pr = { 0 };
    auto_buf out = { 0 };

    if (c->n != 2)
        return policy_usage_error(c, "compile needs one policy");
    if (policy_load_checked(c->words[1], &p, &f, &pr) < 0)
        return policy_report_problems(c, &pr);
    canon_write(&p, &f, &out);
    policy_done(&p);
    operator_limits_done(&f);
    return policy_write_output(STDOUT_FILENO, &out, 0);
}

/* The rules as `cove run` would use them: with the operator's denials and open ranges. */
static int policy_decide(const char *name, const char *url, const char *method, struct network_decision *ret,
                         struct problems *pr)
{
    struct policy p;
    struct operator_limits f = { 0 };
    struct err err = { 0 };

    if (policy_load_checked(name, &p, &f, pr) < 0)
        return -1;
    p.network.mode = NETWORK_EGRESS; /* `none` allows what no rules allow */
    int rc = operator_network_narrow(&f, &p.network, &err);
    if (rc == 0)
        rc = network_decide(&p.network, f.open_ranges, f.nopen_ranges, url, method, ret, &err);
    if (rc < 0) {
        pr->file = NULL;
        problems_add(pr, err.id, 0, 0, NULL, "%s", err.msg);
    }
    policy_done(&p);
    operator_limits_done(&f);
    return rc;
}

static void policy_print_decision(const struct network_decision *d, struct buf *out)
{
    buf_addf(out, "%s: %s:%u\n  rule    %s\n", d->is_allowed ? "allowed" : "refused", d->host, d->port,
             d->rule.len ? d->rule.data : "no rule matches");
    if (d->reason.len)
        buf_addf(out, "  reason  %s\n", d->reason.data);
    if (d->fix.len)
        buf_addf(out, "  fix     %s\n", d->fix.data);
}

static int policy_cmd_why(const struct policy_command *c)
{
    struct network_decision d = { 0 };
    struct problems pr = { 0 };
    auto_buf out = { 0 };
    struct jsonw w;
    int status;

    if (c->n != 3)
        return policy_usage_error(c, "why needs a policy and a URL; usage: cove policy why [FLAGS] NAME|FILE URL");
    if (policy_decide(c->words[1], c->words[2], c->method, &d, &pr) < 0) {
        status = policy_report_problems(c, &pr);
    } else if (c->json) {
        jsonw_init(&w, &out, 0);
        network_decision_write(&d, c->words[2], &w);
        buf_adds(&out, "\n");
        status = policy_write_output(STDOUT_FILENO, &out, !d.is_allowed);
    } else {
        policy_print_decision(&d, &out);
        status = policy_write_output(STDOUT_FILENO, &out, !d.is_allowed);
    }
    network_decision_done(&d);
    return status;
}

static const struct {
    const char *name;
    int (*run)(const struct policy_command *c);
} policy_commands[] = {
    { "check", policy_cmd_check },   { "show", policy_cmd_show }, { "diff", policy_cmd_diff },
    { "import", policy_cmd_import }, { "why", policy_cmd_why },   { "compile", policy_cmd_compile }
};

static int policy_dispatch(const struct policy_command *c)
{
    struct suggest s;
    char msg[160];

    if (c->n == 0)
        return policy_usage_error(c, "a command is missing; use check, show, diff, import or why");
    suggest_init(&s, c->words[0]);
    for (size_t i = 0; i < ARRAY_LEN(policy_commands); i++) {
        if (str_eq(policy_commands[i].name, c->words[0]))
            return policy_commands[i].run(c);
        suggest_offer(&s, policy_commands[i].name);
    }
    snprintf(msg, sizeof(msg), "unknown command '%.40s'; %s%s%s", c->words[0],
             s.best ? "did you mean '" : "the commands are check", s.best ? s.best : ", show, diff",
             s.best ? "'?" : ", import and why");
    return policy_usage_error(c, msg);
}

int main(int argc, char **argv)
{
    struct policy_command c = { 0 };
    bool flags = true;

    for (int i = 1; i < argc; i++) {
        if (flags && str_eq(argv[i], "--"))
            flags = false;
        else if (flags && str_eq(argv[i], "--json"))
            c.json = true;
        else if (flags && str_starts(argv[i], "--method="))
            c.method = argv[i] + strlen("--method=");
        else if (flags && str_eq(argv[i], "--method") && i + 1 < argc)
            c.method = argv[++i];
        else if (flags && argv[i][0] == '-' && argv[i][1])
            return policy_usage_error(&c, "unknown flag; the flags are --json, --method and --help");
        else if (c.n == ARRAY_LEN(c.words))
            return policy_usage_error(&c, "too many arguments; see 'cove policy --help'");
        else
            c.words[c.n++] = argv[i];
    }
    return policy_dispatch(&c);
}
