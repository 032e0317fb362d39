/* Follows an execution as a stream of events and resumes it: the offsets of the printed output are
 * the only state, and the server sends from these offsets on. An execution does not end with its
 * connection, so a broken connection is retried for a while before an error is reported. */
#include "client/ctl/ctl_internal.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "client/cli/denial_notes.h"
#include "client/cli/report.h"
#include "remote/fetch/fetch.h"

#include <time.h>
#include <unistd.h>

#define TRIES 20
#define WAIT_NS 250000000

static bool ctl_follow_write(struct ctl_follow *f, int channel, const void *data, size_t len)
{
    if (len && !f->is_muted && fd_write_all(channel == 2 ? STDERR_FILENO : STDOUT_FILENO, data, len) < 0) {
        err_sys(&f->err, ERR_SYS, "standard output");
        return false;
    }
    f->offset[channel - 1] += len;
    return true;
}

static int ctl_base64_digit(char ch)
{
    if (ch >= 'A' && ch <= 'Z')
        return ch - 'A';
    if (ch >= 'a' && ch <= 'z')
        return ch - 'a' + 26;
    if (ch >= '0' && ch <= '9')
        return ch - '0' + 52;
    return ch == '+' ? 62 : ch == '/' ? 63 : -1;
}

void ctl_decode_base64(struct buf *out, const char *text)
{
    unsigned bits = 0;
    int n = 0;

    for (; ctl_base64_digit(*text) >= 0; text++) {
        bits = bits << 6 | (unsigned)ctl_base64_digit(*text);
        n += 6;
        if (n >= 8) {
            char byte = (char)(bits >> (n -= 8));

            buf_add(out, &byte, 1);
        }
    }
}

static bool ctl_follow_on_output(struct ctl_follow *f, const json_t *line)
{
    int channel = str_eq(ctl_field_text(line, "stream"), "stderr") ? 2 : 1;
    const json_t *data = json_object_get(line, "data");
    auto_buf bytes = { 0 };

    if (data)
        return ctl_follow_write(f, channel, json_string_value(data), json_string_length(data));
    ctl_decode_base64(&bytes, ctl_field_text(line, "base64"));
    return ctl_follow_write(f, channel, bytes.data, bytes.len);
}

/* A displayed value, the value of the last expression, or an exception, of code in a context. */
static bool ctl_follow_on_event(struct ctl_follow *f, const char *type, const json_t *line)
{
    if (f->events_to_skip > 0) {
        f->events_to_skip--;
        return true;
    }
    f->events_shown++;
    if (f->is_muted)
        return true;
    f->show.quiet = f->c->quiet;
    f->show.name = f->execution;
    if (str_eq(type, "exception") ? ctl_show_exception(&f->show, line)
                                  : ctl_show_data(&f->show, json_object_get(line, "data")))
        return true;
    f->err = f->show.err;
    return false;
}

bool ctl_follow_line(void *arg, const json_t *line)
{
    struct ctl_follow *f = arg;
    const char *type = ctl_field_text(line, "type");
    json_t *execution = json_object_get(line, "execution");

    if (str_eq(type, "started") && !f->execution)
        f->execution = str_dup(ctl_field_text(execution, "id"));
    if (f->forwards_stdin && f->execution && !f->feed)
        f->feed = ctl_stdin_feed_new(f->c, f->sandbox, f->execution);
    if (str_eq(type, "output"))
        return ctl_follow_on_output(f, line);
    if (str_eq(type, "display") || str_eq(type, "result") || str_eq(type, "exception"))
        return ctl_follow_on_event(f, type, line);
    if (!str_eq(type, "end"))
        return true;
    json_decref(f->ended_execution);
    f->ended_execution = json_incref(execution);
    return false;
}

static int ctl_follow_once(struct ctl_follow *f, struct err *err)
{
    auto_free char *base = ctl_api_path("/v1/sandboxes/%s/executions/%s/stream", f->sandbox, f->execution);
    auto_free char *path = str_printf("%s?stdoutOffset=%" PRIu64 "&stderrOffset=%" PRIu64, base, f->offset[0],
                                      f->offset[1]);

    f->events_to_skip = f->events_shown;
    if (client_json_lines(f->c->client, "GET", path, NULL, ctl_follow_line, f, err) < 0)
        return -1;
    if (f->err.id != ERR_NONE) {
        *err = f->err;
        return -1;
    }
    return f->ended_execution
               ? 0
               : err_set(err, ERR_CUT_OFF, "the stream ended before the execution; 'cove logs' prints the rest");
}

int ctl_follow(struct ctl_follow *f, struct err *err)
{
    for (int i = 0;; i++) {
        if (ctl_follow_once(f, err) == 0)
            return 0;
        if (i == TRIES || f->err.id != ERR_NONE || ctl_stdin_feed_error(f->feed) ||
            (err->id != ERR_CUT_OFF && err->id != ERR_UNREACHABLE))
            return -1;
        if (i == 0 && !f->c->quiet)
            report_note("connection lost; reconnecting");
        nanosleep(&(struct timespec){ .tv_nsec = WAIT_NS }, NULL);
    }
}

void ctl_note_end(const struct ctl *c, const json_t *x)
{
    static const struct {
        const char *by, *says;
    } ends[] = {
        { "cpu", "it used more processor time than its limit" },
        { "memory",
          "it used more memory than its sandbox has (set --memory of 'cove sandbox create' or 'cove execute')" },
        { "lifetime", "the lifetime of its sandbox is over ('cove sandbox set --lifetime' extends it)" },
        { "idle", "its sandbox was idle for too long" },
        { "killed", "it was killed on request" },
        { "budget", "a budget of your tenant is used up ('cove budget get' shows it)" },
    };
    const struct arg *timeout = args_find(&c->args, OPT_LIMIT + LIMIT_WALL);
    const char *by = ctl_field_text(x, "endedBy");
    char dropped[32], text[LIMIT_TEXT];
    uint64_t ms;
    struct err err = { 0 };

    if (c->quiet || hint_note(ctl_field_text(x, "hint")))
        return;
    if (ctl_field_number(x, "droppedBytes"))
        report_note("%s of output were dropped: the output limit was reached",
                    str_bytes(ctl_field_number(x, "droppedBytes"), dropped));
    if (str_eq(by, "timeout") && timeout && limit_parse_flag(LIMIT_WALL, timeout->value, &ms, &err) == 0)
        report_note("ended: timeout after %s (--timeout)", limit_print(LIMIT_WALL, ms, text));
    else if (str_eq(by, "timeout"))
        report_note("ended: timeout (--timeout)");
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        if (str_eq(by, ends[i].by))
            report_note("ended: %s", ends[i].says);
    if (json_is_true(json_object_get(x, "contextReset")))
        report_note("the interpreter was restarted: the variables of the context are lost");
}

int ctl_exit_status(const json_t *x)
{
    const char *outcome = ctl_field_text(x, "outcome");
    const json_t *code = json_object_get(x, "exitCode");
    json_int_t signal = json_integer_value(json_object_get(x, "signal"));

    if (str_eq(outcome, "timeout"))
        return 124;
    if (str_eq(outcome, "out_of_memory"))
        return 123;
    if (signal > 0)
        return 128 + (int)signal;
    if (json_is_integer(code))
        return (int)json_integer_value(code) & 0xff;
    return 125;
}
