/* `cove explain`: a receipt in plain words.
 *
 * It reads the JSON and not the struct, because receipts are stored, sent and read on other
 * machines, and it adds nothing to what the receipt says. All text in a receipt is untrusted, so
 * control characters are removed before it is printed. */
#include "client/cli/explain.h"

#include "client/cli/report.h"
#include "client/cli/verbs.h"

#include "core/base/fd.h"
#include "core/base/jsonr.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>

static int explain_read_input(const char *path, struct buf *out, struct err *err)
{
    bool standard = str_eq(path, "-");
    auto_fd int own = standard ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    int fd = standard ? STDIN_FILENO : own;
    char block[16384];
    ssize_t n;

    if (fd < 0)
        return err_sys(err, errno == ENOENT ? ERR_MISSING : ERR_INVALID, "%.120s", path);
    while ((n = read(fd, block, sizeof(block))) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, ERR_INVALID, "%.120s", path);
        buf_add(out, block, (size_t)n);
        if (out->len > JSON_SIZE_MAX)
            return err_set(err, ERR_INVALID, "%.120s: too large for a receipt", path);
    }
    return 0;
}

/* --- words --- */

static void explain_add_clean_text(struct buf *out, const char *text)
{
    auto_free char *copy = str_dup(text ? text : "?");

    str_strip_control_chars(copy);
    buf_adds(out, copy);
}

static bool explain_number(const struct json *receipt, const char *key, uint64_t *ret)
{
    return json_u64(json_get(receipt, key), ret);
}

static void explain_add_time(struct buf *out, uint64_t us)
{
    char text[32];

    if (us < 10000)
        buf_addf(out, "%u.%02u ms", (unsigned)(us / 1000), (unsigned)(us % 1000 / 10));
    else
        buf_adds(out, str_ms(us / 1000, text));
}

static const char *explain_plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

/* Appends "(30s)", the value of the limit that ended the execution. */
static void explain_add_limit(const struct json *receipt, enum limit l, struct buf *out)
{
    const struct limit_info *info = limit_info(l);
    char text[LIMIT_TEXT];
    uint64_t v;

    if (json_u64(json_get(json_get(json_get(receipt, "limits"), info->name), "value"), &v))
        buf_addf(out, " (%s)", limit_print(l, v, text));
    if (info->flag)
        buf_addf(out, "; --%s changes the limit", info->flag);
}

static void explain_end(const struct json *r, struct buf *out)
{
    static const struct {
        const char *by, *says;
        int limit; /* enum limit + 1; 0: none */
    } ends[] = {
        { "timeout", "It was ended because it ran longer than its timeout", LIMIT_WALL + 1 },
        { "cpu", "It was ended because it used more processor time than its limit", LIMIT_CPU_TIME + 1 },
        { "memory", "It was ended because it used more memory than its limit", LIMIT_MEMORY + 1 },
        { "lifetime", "It was ended because the lifetime of its sandbox was over", LIMIT_LIFETIME + 1 },
        { "idle", "Its sandbox was ended because it was idle for too long", LIMIT_IDLE + 1 },
        { "killed", "It was killed on request", 0 },
        { "budget", "It was ended because its tenant had used up its budget", 0 },
        { "lost", "Its sandbox was lost before it ended: the process that managed it is gone", 0 },
    };
    const char *by = json_text(json_get(r, "endedBy"));
    uint64_t n = 0;

    if (by && str_eq(by, "exit") && explain_number(r, "exitCode", &n))
        buf_addf(out, "The program exited with status %" PRIu64 "%s.\n", n, n ? "" : ", which means success");
    else if (by && str_eq(by, "signal") && explain_number(r, "signal", &n) && n < 65)
        buf_addf(out, "A signal ended the program: %" PRIu64 " (%s).\n", n, strsignal((int)n));
    for (size_t i = 0; by && i < ARRAY_LEN(ends); i++)
        if (str_eq(by, ends[i].by)) {
            buf_adds(out, ends[i].says);
            if (ends[i].limit)
                explain_add_limit(r, (enum limit)(ends[i].limit - 1), out);
            buf_adds(out, ".\n");
        }
}

static void explain_usage(const struct json *r, struct buf *out)
{
    uint64_t wall, cpu, memory, tasks;
    char text[32];
    const struct json *used = json_get(r, "used");
    bool have_wall = json_ms(json_get(used, "wallMs"), &wall), have_cpu = json_ms(json_get(used, "cpuMs"), &cpu);

    if (have_wall) {
        buf_adds(out, "It ran for ");
        explain_add_time(out, wall);
        if (have_cpu) {
            buf_adds(out, " and used ");
            explain_add_time(out, cpu);
            buf_adds(out, " of processor time");
        }
        buf_adds(out, ".\n");
    }
    if (explain_number(used, "memoryPeakBytes", &memory))
        buf_addf(out, "Its peak memory usage was %s.\n", str_size(memory, text));
    if (explain_number(used, "tasksStarted", &tasks))
        buf_addf(out, "%" PRIu64 " process%s or thread%s ran in it.\n", tasks, tasks == 1 ? "" : "es",
                 explain_plural(tasks));
}

/* "The limit pids refused a process or thread 3 times (256); --pids sets it." */
static void explain_limit_hits(const struct json *r, struct buf *out)
{
    const struct json *list = json_get(r, "limitHits");

    for (const struct json *m = list && list->kind == JSON_ARRAY ? list->child : NULL; m; m = m->next) {
        const char *name = json_text(json_get(m, "limit"));
        char text[LIMIT_TEXT];
        uint64_t n, v;

        buf_adds(out, "The limit ");
        explain_add_clean_text(out, name);
        buf_adds(out, ": ");
        explain_add_clean_text(out, json_text(json_get(m, "how")));
        if (explain_number(m, "count", &n))
            buf_addf(out, " %" PRIu64 " time%s", n, explain_plural(n));
        for (int i = 0; name && i < LIMIT_COUNT; i++)
            if (str_eq(name, limit_info((enum limit)i)->name) &&
                json_u64(json_get(json_get(json_get(r, "limits"), name), "value"), &v))
                buf_addf(out, " (%s)", limit_print((enum limit)i, v, text));
        buf_adds(out, "; ");
        explain_add_clean_text(out, json_text(json_get(m, "fix")));
        buf_adds(out, ".\n");
    }
}

static void explain_limit_effects(const struct json *r, struct buf *out)
{
    uint64_t n;
    char text[32];

    const struct json *used = json_get(r, "used");

    explain_limit_hits(r, out);
    if (explain_number(used, "oomKills", &n) && n)
        buf_addf(out, "The kernel killed %" PRIu64 " of its processes because the memory limit was reached.\n", n);
    if (json_ms(json_get(used, "throttledMs"), &n) && n) {
        buf_adds(out, "The processor limit delayed it by ");
        explain_add_time(out, n);
        buf_adds(out, ".\n");
    }
    if (explain_number(r, "droppedBytes", &n) && n)
        buf_addf(out, "%s of its output were dropped.\n", str_size(n, text));
}

static void explain_denial(const struct json *d, struct buf *out)
{
    const char *rule = json_text(json_get(d, "rule")), *why = rule ? strstr(rule, ": ") : NULL;
    uint64_t n = 0;

    (void)json_u64(json_get(d, "count"), &n);
    buf_adds(out, "  ");
    explain_add_clean_text(out, json_text(json_get(d, "call")));
    buf_addf(out, ", %" PRIu64 " time%s\n    why: ", n, explain_plural(n));
    explain_add_clean_text(out, why ? why + 2 : rule);
    buf_adds(out, "\n    fix: ");
    explain_add_clean_text(out, json_text(json_get(d, "fix")));
    buf_adds(out, "\n");
}

static void explain_denials(const struct json *r, struct buf *out)
{
    const struct json *list = json_get(r, "denials");
    uint64_t more = 0;

    if (!list || list->kind != JSON_ARRAY)
        return;
    if (!list->child) {
        buf_adds(out, "No system call was denied.\n");
        return;
    }
    buf_adds(out, "Denied system calls:\n");
    for (const struct json *d = list->child; d; d = d->next)
        explain_denial(d, out);
    if (explain_number(r, "denialsMore", &more) && more)
        buf_addf(out, "  and %" PRIu64 " more of other kinds\n", more);
}

static void explain_destination(const struct json *d, struct buf *out)
{
    const char *host = json_text(json_get(d, "host")), *reason = json_text(json_get(d, "reason"));
    uint64_t port = 0, connections = 0, refused = 0, failed = 0, received = 0, sent = 0;
    auto_buf target = { 0 };
    char in[32], to[32];

    (void)explain_number(d, "port", &port);
    (void)explain_number(d, "connections", &connections);
    (void)explain_number(d, "refused", &refused);
    (void)explain_number(d, "failed", &failed);
    (void)explain_number(d, "receivedBytes", &received);
    (void)explain_number(d, "sentBytes", &sent);
    explain_add_clean_text(&target, host);
    if (port)
        buf_addf(&target, ":%" PRIu64, port);
    const char *name = target.data ? target.data : "an unnamed destination";
    buf_addf(out, "  %s", name);
    if (connections)
        buf_addf(out, ", %" PRIu64 " connection%s, %s received, %s sent", connections, explain_plural(connections),
                 str_size(received, in), str_size(sent, to));
    if (refused)
        buf_addf(out, ", refused %" PRIu64 " time%s", refused, explain_plural(refused));
    if (failed)
        buf_addf(out, ", failed %" PRIu64 " time%s", failed, explain_plural(failed));
    buf_adds(out, "\n");
    if (!reason)
        return;
    buf_adds(out, "    why: ");
    explain_add_clean_text(out, reason);
    buf_adds(out, "\n");
    if (refused && str_starts(reason, "no rule"))
        buf_addf(out, "    fix: allow %s in the network policy (--allow of cove run)\n", name);
}

static void explain_network(const struct json *r, struct buf *out)
{
    const struct json *network = json_get(r, "network"), *list = json_get(network, "destinations");
    const char *why = json_text(json_get(network, "absentWhy"));
    uint64_t more = 0;

    if (!network || network->kind != JSON_OBJECT)
        return;
    if (why) {
        buf_adds(out, "Its connections are not known: ");
        explain_add_clean_text(out, why);
        buf_adds(out, ".\n");
        return;
    }
    buf_adds(out, list && list->child ? "Connections:\n" : "It made no connection.\n");
    for (const struct json *d = list && list->kind == JSON_ARRAY ? list->child : NULL; d; d = d->next)
        explain_destination(d, out);
    if (explain_number(network, "otherDestinations", &more) && more)
        buf_addf(out, "  and %" PRIu64 " more\n", more);
}

#define SHOWN_FILES 10

static void explain_changes(const struct json *r, struct buf *out)
{
    const struct json *c = json_get(r, "changes"), *files = json_get(c, "files");
    uint64_t added = 0, modified = 0, deleted = 0, shown = 0;

    if (!c)
        return;
    (void)explain_number(c, "added", &added);
    (void)explain_number(c, "modified", &modified);
    (void)explain_number(c, "deleted", &deleted);
    if (added + modified + deleted == 0) {
        buf_adds(out, "It changed nothing under /workspace.\n");
        return;
    }
    buf_addf(out, "Under /workspace: %" PRIu64 " added, %" PRIu64 " modified, %" PRIu64 " deleted.\n", added, modified,
             deleted);
    for (const struct json *f = files ? files->child : NULL; f && shown < SHOWN_FILES; f = f->next, shown++) {
        buf_adds(out, "  ");
        explain_add_clean_text(out, json_text(json_get(f, "change")));
        buf_adds(out, " ");
        explain_add_clean_text(out, json_text(json_get(f, "path")));
        buf_adds(out, "\n");
    }
    if (added + modified + deleted > shown)
        buf_addf(out, "  and %" PRIu64 " more\n", added + modified + deleted - shown);
}

static void explain_limits(const struct json *r, struct buf *out)
{
    const struct json *limits = json_get(r, "limits");
    const char *comma = "This host does not fully enforce: ";

    for (const struct json *l = limits && limits->kind == JSON_OBJECT ? limits->child : NULL; l; l = l->next) {
        const char *state = json_text(json_get(l, "state"));

        if (!state || str_eq(state, "enforced"))
            continue;
        buf_adds(out, comma);
        explain_add_clean_text(out, l->key);
        buf_adds(out, str_eq(state, "partial") ? " (in part" : " (not at all");
        if (json_text(json_get(l, "why"))) {
            buf_adds(out, ": ");
            explain_add_clean_text(out, json_text(json_get(l, "why")));
        }
        buf_adds(out, ")");
        comma = ", ";
    }
    buf_adds(out, comma[0] == ',' ? ".\n" : "");
}

static void explain_add_unknown(struct buf *out, bool *begun, const char *before, const char *what, const char *why)
{
    buf_adds(out, *begun ? "  " : "Not measured:\n  ");
    *begun = true;
    buf_adds(out, before);
    explain_add_clean_text(out, what);
    buf_adds(out, ": ");
    explain_add_clean_text(out, why);
    buf_adds(out, "\n");
}

static const char *explain_unobservable_reason(const struct json *limit)
{
    const char *why = json_text(json_get(limit, "unseen"));

    return why ? why : "";
}

/* Adds all consecutive limits that have the same reason; returns the last of them. */
static const struct json *explain_add_unobservable(struct buf *out, bool *begun, const struct json *l)
{
    const char *why = explain_unobservable_reason(l);
    auto_buf names = { 0 };

    buf_adds(&names, l->key);
    for (; l->next && str_eq(explain_unobservable_reason(l->next), why); l = l->next)
        buf_addf(&names, ", %s", l->next->key);
    explain_add_unknown(out, begun, "denials by ", names.data, why);
    return l;
}

static void explain_absent(const struct json *r, struct buf *out)
{
    const struct json *absent = json_get(r, "absent"), *limits = json_get(r, "limits");
    bool begun = false;

    for (const struct json *a = absent && absent->kind == JSON_OBJECT ? absent->child : NULL; a; a = a->next)
        explain_add_unknown(out, &begun, "", a->key, json_text(a));
    for (const struct json *l = limits && limits->kind == JSON_OBJECT ? limits->child : NULL; l; l = l->next)
        if (explain_unobservable_reason(l)[0])
            l = explain_add_unobservable(out, &begun, l);
}

int explain_receipt(const struct buf *in, struct buf *out, struct err *err)
{
    struct json_doc doc;

    if (json_read(in->data ? in->data : "", in->len, &doc, err) < 0)
        return -1;
    const struct json *whole = json_get(doc.root, "receipt");
    const struct json *r = whole ? whole : doc.root;
    const char *failed = json_text(json_get(json_get(doc.root, "error"), "message"));
    int rc = 0;
    if (!json_text(json_get(r, "endedBy"))) {
        rc = err_set(err, ERR_INVALID, "the input is JSON, but not a receipt%s%.160s",
                     failed ? "; the run failed: " : "", failed ? failed : "");
        str_strip_control_chars(err->msg);
    } else {
        explain_end(r, out);
        explain_usage(r, out);
        explain_limit_effects(r, out);
        explain_denials(r, out);
        explain_network(r, out);
        explain_changes(r, out);
        explain_limits(r, out);
        explain_absent(r, out);
    }
    json_doc_done(&doc);
    return rc;
}

int verb_explain(const struct args *a)
{
    auto_buf in = { 0 }, out = { 0 };
    struct err err = { 0 };

    if (a->nrest != 1) {
        err_set(&err, ERR_USAGE, "usage: cove explain FILE, or cove explain - for standard input");
        return report_error(&err, false);
    }
    if (explain_read_input(a->rest[0], &in, &err) < 0)
        return report_error(&err, false);
    if (explain_receipt(&in, &out, &err) < 0) {
        err_wrap(&err, "%.80s", a->rest[0]);
        return report_error(&err, false);
    }
    return report_text(&out);
}
