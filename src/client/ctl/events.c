/* cove events: prints past events of a server, and with -f new events. The number of the last event
 * is the only state: a broken stream is resumed after it, so no event is lost or printed twice. */
#include "client/ctl/ctl_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "client/cli/report.h"
#include "remote/fetch/fetch.h"

#include <stdio.h>
#include <time.h>

#define TRIES 20
#define WAIT_NS 250000000

struct ctl_event_feed {
    struct ctl *c;
    char *filter; /* "&sandbox=...&kind=...", escaped */
    bool has_after, loss_reported;
    uint64_t after;
    int tries;
    struct err err;
};

static bool ctl_events_print_line(struct ctl_event_feed *f, const char *text)
{
    if (printf("%s\n", text) < 0 || fflush(stdout) != 0) {
        err_sys(&f->err, ERR_SYS, "standard output");
        return false;
    }
    return true;
}

static bool ctl_events_print_event(struct ctl_event_feed *f, const json_t *e)
{
    auto_free char *body = json_dumps(json_object_get(e, "body"), JSON_COMPACT | JSON_ENSURE_ASCII);
    auto_free char *text = NULL;

    if (f->c->json)
        text = ctl_json_text(e);
    else
        text = str_printf("%s  %-17s  %-22s  %s%s%s", ctl_field_text(e, "at"), ctl_field_text(e, "kind"),
                          ctl_field_text(e, "sandboxId"), ctl_field_text(e, "executionId"),
                          *ctl_field_text(e, "executionId") && body ? " " : "", body ? body : "");
    if (!f->c->json) {
        size_t n = strlen(text);

        while (n > 0 && text[n - 1] == ' ')
            text[--n] = '\0';
        str_strip_control_chars(text);
    }
    return ctl_events_print_line(f, text);
}

/* --- past events --- */

struct ctl_event_pages {
    struct ctl_event_feed *f;
    bool failed;
};

static void ctl_events_on_item(void *arg, const json_t *item)
{
    struct ctl_event_pages *p = arg;

    if (!p->failed)
        p->failed = !ctl_events_print_event(p->f, item);
}

static int ctl_events_list(struct ctl_event_feed *f, struct err *err)
{
    struct ctl_event_pages p = { .f = f };
    auto_free char *path = str_printf("/v1/events?after=%" PRIu64 "%s", f->after, f->filter);

    if (ctl_for_each_item(f->c, path, ctl_events_on_item, &p, err) < 0)
        return -1;
    if (p.failed)
        *err = f->err;
    return p.failed ? -1 : 0;
}

/* --- new events --- */

static bool ctl_events_on_line(void *arg, const json_t *line)
{
    struct ctl_event_feed *f = arg;
    const char *type = ctl_field_text(line, "type");
    const json_t *why = json_object_get(line, "error");

    f->tries = 0;
    if (str_eq(type, "ready")) {
        f->has_after = true;
        f->after = ctl_field_number(line, "after");
    } else if (str_eq(type, "gap") && !f->c->quiet) {
        report_note("the server has removed some events before event %" PRIu64, ctl_field_number(line, "next"));
    } else if (str_eq(type, "event")) {
        f->after = ctl_field_number(line, "seq");
        return ctl_events_print_event(f, line);
    } else if (str_eq(type, "end")) {
        enum err_id id = err_by_code(ctl_field_text(why, "code"));

        err_set(&f->err, id == ERR_NONE ? ERR_CUT_OFF : id, "%.220s", ctl_field_text(why, "message"));
        return false;
    }
    return true;
}

static bool ctl_events_is_retryable(const struct err *err)
{
    return err->id == ERR_CUT_OFF || err->id == ERR_UNREACHABLE || err->id == ERR_BUSY;
}

static int ctl_events_follow_once(struct ctl_event_feed *f, struct err *err)
{
    auto_free char *after = f->has_after ? str_printf("after=%" PRIu64, f->after) : str_dup("");
    const char *filter = !*after && *f->filter ? f->filter + 1 : f->filter;
    auto_free char *path = str_printf("/v1/events%s%s%s", *after || *filter ? "?" : "", after, filter);

    f->err = (struct err){ 0 };
    if (client_json_lines(f->c->client, "GET", path, NULL, ctl_events_on_line, f, err) < 0)
        return -1;
    if (f->err.id == ERR_NONE)
        return err_set(err, ERR_CUT_OFF, "the server closed the stream without a reason");
    *err = f->err;
    return -1;
}

static int ctl_events_follow(struct ctl_event_feed *f, struct err *err)
{
    for (;;) {
        ctl_events_follow_once(f, err);
        if (!ctl_events_is_retryable(err) || f->tries++ == TRIES)
            return -1;
        if (!f->loss_reported && !f->c->quiet)
            report_note("connection lost; reconnecting");
        f->loss_reported = true;
        nanosleep(&(struct timespec){ .tv_nsec = WAIT_NS }, NULL);
    }
}

/* --- arguments --- */

static int ctl_events_read_filter(struct ctl_event_feed *f, struct err *err)
{
    struct ctl *c = f->c;
    const struct arg *after = args_find(&c->args, OPT_AFTER), *kind = args_find(&c->args, OPT_KIND);
    auto_free char *sandbox = NULL;
    auto_buf out = { 0 };

    if (ctl_require_args(c, 0, 1, "events [-f] [SANDBOX]", err) < 0)
        return -1;
    if (c->args.nrest == 1 && ctl_resolve_sandbox(c, c->args.rest[0], &sandbox, err) < 0)
        return -1;
    f->has_after = after != NULL;
    if (after && !str_to_u64(after->value, INT64_MAX, &f->after))
        return err_set(err, ERR_USAGE,
                       "--after %.40s: not the number of an event; 'cove events --json' prints the numbers",
                       after->value);
    if (sandbox)
        buf_addf(&out, "&sandbox=%s", sandbox);
    if (kind) {
        auto_free char *escaped = fetch_escape(kind->value);

        buf_addf(&out, "&kind=%s", escaped);
    }
    f->filter = str_dup(out.data ? out.data : "");
    return 0;
}

int ctl_events(struct ctl *c, struct err *err)
{
    struct ctl_event_feed f = { .c = c };
    int rc = ctl_events_read_filter(&f, err);

    if (rc == 0)
        rc = args_find(&c->args, OPT_FOLLOW) ? ctl_events_follow(&f, err) : ctl_events_list(&f, err);
    free(f.filter);
    return rc;
}
