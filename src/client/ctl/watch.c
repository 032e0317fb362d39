/* cove watch: prints file changes in a sandbox, one line per event. Unlike the stream of an
 * execution, a broken stream is not resumed, because changes in between are unknown; an
 * error says so. */
#include "client/ctl/ctl_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "client/cli/report.h"
#include "remote/fetch/fetch.h"

#include <stdio.h>

struct ctl_watch_stream {
    struct ctl *c;
    const char *path;
    bool ended;
    struct err err;
};

static bool ctl_watch_print_line(struct ctl_watch_stream *l, const char *text)
{
    if (printf("%s\n", text) < 0 || fflush(stdout) != 0) {
        err_sys(&l->err, ERR_SYS, "standard output");
        return false;
    }
    return true;
}

/* File names are untrusted and could contain control sequences for our terminal. */
static char *ctl_watch_clean_path(const json_t *line, const char *key)
{
    char *text = str_printf("%s%s", ctl_field_text(line, key),
                            json_is_true(json_object_get(line, "directory")) ? "/" : "");

    str_strip_control_chars(text);
    return text;
}

static bool ctl_watch_print_event(struct ctl_watch_stream *l, const char *type, const json_t *line)
{
    auto_free char *path = ctl_watch_clean_path(line, "path"), *from = ctl_watch_clean_path(line, "from");
    auto_free char *text = NULL;

    if (str_eq(type, "overflow"))
        text = str_printf("%-9s events were dropped; list the directory again", type);
    else if (str_eq(type, "moved"))
        text = str_printf("%-9s %s -> %s", type, from, path);
    else
        text = str_printf("%-9s %s", type, path);
    return ctl_watch_print_line(l, text);
}

static void ctl_watch_on_end(struct ctl_watch_stream *l, const json_t *line)
{
    const json_t *why = json_object_get(line, "error");
    enum err_id id = err_by_code(ctl_field_text(why, "code"));

    l->ended = true;
    if (why)
        err_set(&l->err, id == ERR_NONE ? ERR_BUG : id, "%.220s", ctl_field_text(why, "message"));
    else if (!l->c->quiet)
        report_note("%.150s was removed", l->path);
}

static bool ctl_watch_on_line(void *arg, const json_t *line)
{
    struct ctl_watch_stream *l = arg;
    const char *type = ctl_field_text(line, "type");
    bool more = true;

    if (str_eq(type, "heartbeat"))
        return true;
    if (l->c->json) {
        auto_free char *text = json_dumps(line, JSON_COMPACT | JSON_ENSURE_ASCII);

        more = ctl_watch_print_line(l, text);
    } else if (str_eq(type, "watching")) {
        if (!l->c->quiet)
            report_note("watching %.150s; press Ctrl-C to stop", l->path);
    } else if (!str_eq(type, "end")) {
        more = ctl_watch_print_event(l, type, line);
    }
    if (str_eq(type, "end"))
        ctl_watch_on_end(l, line);
    return more && !l->ended;
}

int ctl_watch(struct ctl *c, struct err *err)
{
    auto_free char *sandbox = NULL;

    if (ctl_require_args(c, 1, 2, "watch [-r] SANDBOX [PATH]", err) < 0 ||
        ctl_resolve_sandbox(c, c->args.rest[0], &sandbox, err) < 0)
        return -1;
    auto_free char *place = ctl_sandbox_path(c->args.nrest == 2 ? c->args.rest[1] : "/workspace");
    struct ctl_watch_stream l = { .c = c, .path = place };
    auto_free char *base = ctl_api_path("/v1/sandboxes/%s/files/watch", sandbox);
    auto_free char *escaped = fetch_escape(l.path);
    auto_free char *path = str_printf("%s?path=%s%s", base, escaped,
                                      args_find(&c->args, OPT_RECURSIVE) ? "&recursive=true" : "");
    int bad = client_json_lines(c->client, "GET", path, NULL, ctl_watch_on_line, &l, err);

    if (bad && err->id == ERR_CUT_OFF)
        err_set(err, ERR_CUT_OFF,
                "the connection was lost; changes from now on are not reported; run 'cove watch' again");
    if (!bad && l.err.id != ERR_NONE) {
        *err = l.err;
        bad = -1;
    }
    return !bad && !l.ended ? err_set(err, ERR_CUT_OFF, "the server closed the stream without a reason") : bad;
}
