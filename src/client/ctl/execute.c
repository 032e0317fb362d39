/* cove execute: runs a program once in a fresh sandbox on a server.
 *
 * Output and results are printed as they arrive; requested files are written when the program has
 * ended. Standard input is sent completely with the request, and only with -i. Ctrl-C closes the
 * connection, which ends the program. */
#include "client/ctl/ctl_internal.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "client/cli/report.h"
#include "client/ctl/show.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (3 * MIB) /* the maximum that fits into a request as base64 */

/* --- the request --- */

/* LOCAL or LOCAL:PATH. */
static int ctl_execute_add_file(json_t *files, const char *word, struct err *err)
{
    const char *colon = strrchr(word, ':'), *slash = strrchr(word, '/');
    auto_free char *here = colon ? str_dup_n(word, (size_t)(colon - word)) : str_dup(word);
    const char *there = colon ? colon + 1 : slash ? slash + 1 : word;
    auto_buf data = { 0 }, coded = { 0 };

    if (ctl_read_path(here, FILE_MAX, &data, err) < 0)
        return -1;
    text_base64(&coded, data.data ? data.data : "", data.len);
    json_t *file = json_object();
    json_object_set_new(file, "path", json_string(there));
    json_object_set_new(file, "contentBase64", json_string(coded.data ? coded.data : ""));
    json_array_append_new(files, file);
    return 0;
}

static int ctl_execute_put_files(const struct ctl *c, json_t *body, struct err *err)
{
    json_t *files = json_array(), *outputs = json_array();

    json_object_set_new(body, "files", files);
    json_object_set_new(body, "outputs", outputs);
    for (size_t i = 0; i < c->args.n; i++) {
        const struct arg *a = &c->args.items[i];

        if (a->opt->id == OPT_FILE && ctl_execute_add_file(files, a->value, err) < 0)
            return -1;
        if (a->opt->id == OPT_OUTPUT)
            json_array_append_new(outputs, json_string(a->value));
    }
    if (json_array_size(files) == 0)
        json_object_del(body, "files");
    if (json_array_size(outputs) == 0)
        json_object_del(body, "outputs");
    return 0;
}

static void ctl_execute_put_command(const struct ctl *c, json_t *body)
{
    json_t *words = json_array();

    for (int i = 0; i < c->args.nrest; i++)
        json_array_append_new(words, json_string(c->args.rest[i]));
    json_object_set_new(body, "command", words);
}

static int ctl_execute_make_body(struct ctl *c, json_t *body, struct err *err)
{
    bool command = c->args.nrest > 1 || (c->args.nrest == 1 && c->args.after_dashes);

    if (command && args_find(&c->args, OPT_CODE))
        return err_set(err, ERR_USAGE, "-c CODE and a command exclude each other; give one of them");
    ctl_set_text(c, OPT_RUNTIME, body, "language");
    ctl_set_text(c, OPT_TEMPLATE, body, "template");
    ctl_set_text(c, OPT_DRIVER, body, "driver");
    ctl_set_text(c, OPT_CWD, body, "cwd");
    ctl_set_text(c, OPT_TIER, body, "tier");
    if (command)
        ctl_execute_put_command(c, body);
    else if (ctl_put_code(c, c->args.nrest ? c->args.rest[0] : NULL, body, err) < 0)
        return -1;
    if (ctl_put_stdin(c, body, err) < 0 || ctl_execute_put_files(c, body, err) < 0 ||
        ctl_set_pairs(c, OPT_ENV, true, body, "env", err) < 0)
        return -1;
    if (ctl_set_resources(c, body, err) < 0 || ctl_set_network(c, body, err) < 0)
        return -1;
    if (args_find(&c->args, OPT_CACHE))
        json_object_set_new(body, "cache", json_true());
    if (args_find(&c->args, OPT_RECEIPT))
        json_object_set_new(body, "receipt", json_string("full"));
    return ctl_set_run_limits(c, body, err);
}

/* --- the answer --- */

/* File names of the server are untrusted: only a plain path below the directory is written. */
static bool ctl_execute_path_is_plain(const char *path)
{
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, "/");

        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n;
        p += *p == '/';
    }
    return *path != '\0';
}

static int ctl_execute_open_below(int dir, const char *path, struct err *err)
{
    auto_fd int at = dup(dir);
    const char *p = path;

    for (size_t n = strcspn(p, "/"); at >= 0 && p[n] == '/'; p += n + 1, n = strcspn(p, "/")) {
        auto_free char *part = str_dup_n(p, n);

        if (mkdirat(at, part, 0777) < 0 && errno != EEXIST)
            return err_sys(err, ERR_SYS, "%.160s", path);
        int next = openat(at, part, O_DIRECTORY | O_NOFOLLOW | O_RDONLY | O_CLOEXEC);
        fd_close(&at);
        at = next;
    }
    int fd = at < 0 ? -1 : openat(at, p, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    return fd < 0 ? err_sys(err, ERR_SYS, "%.160s", path) : fd;
}

static int ctl_execute_save_file(const struct ctl *c, int dir, const json_t *file, struct err *err)
{
    const char *path = ctl_field_text(file, "path");
    auto_buf data = { 0 };

    path += *path == '/';
    if (!ctl_execute_path_is_plain(path))
        return err_set(err, ERR_PROTOCOL, "the server sent an invalid file name");
    const json_t *content = json_object_get(file, "content");
    if (content)
        buf_add(&data, json_string_value(content), json_string_length(content));
    else
        ctl_decode_base64(&data, ctl_field_text(file, "contentBase64"));
    auto_fd int fd = ctl_execute_open_below(dir, path, err);
    if (fd < 0)
        return -1;
    if (data.len && fd_write_all(fd, data.data, data.len) < 0)
        return err_sys(err, ERR_SYS, "%.160s", path);
    if (!c->quiet)
        report_note("wrote %s", path);
    return 0;
}

static int ctl_execute_save_files(const struct ctl *c, const json_t *end, struct err *err)
{
    const struct arg *to = args_find(&c->args, OPT_SAVE);
    const json_t *files = json_object_get(end, "files"), *left = json_object_get(end, "omitted");

    if (to && mkdir(to->value, 0777) < 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "%.160s", to->value);
    auto_fd int dir = open(to ? to->value : ".", O_DIRECTORY | O_RDONLY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, ERR_SYS, "%.160s", to ? to->value : ".");
    for (size_t i = 0; i < json_array_size(files); i++)
        if (ctl_execute_save_file(c, dir, json_array_get(files, i), err) < 0)
            return -1;
    for (size_t i = 0; i < json_array_size(left) && !c->quiet; i++) {
        const json_t *o = json_array_get(left, i);

        report_note("%s was not copied: %s", ctl_field_text(o, "path"), ctl_field_text(o, "reason"));
    }
    return 0;
}

struct ctl_execute_stream {
    struct ctl_show show;
    json_t *ended_execution;
};

static bool ctl_execute_on_line(void *arg, const json_t *line)
{
    struct ctl_execute_stream *s = arg;
    const char *type = ctl_field_text(line, "type");

    if (str_eq(type, "output"))
        return ctl_show_output(&s->show, line);
    if (str_eq(type, "display") || str_eq(type, "result"))
        return ctl_show_data(&s->show, json_object_get(line, "data"));
    if (str_eq(type, "exception"))
        return ctl_show_exception(&s->show, line);
    if (!str_eq(type, "end"))
        return true;
    s->ended_execution = json_incref(json_object_get(line, "execution"));
    return false;
}

/* Prints a complete answer, which is how cached results and results of a tier arrive. */
static void ctl_execute_show_answer(struct ctl_execute_stream *s, json_t *answer)
{
    static const char *const streams[] = { "stdout", "stderr" };
    const json_t *shown = json_object_get(answer, "results"), *raised = json_object_get(answer, "exception");
    bool good = true;

    for (size_t i = 0; i < ARRAY_LEN(streams); i++) {
        AUTO_JSON *line = json_pack("{s:s, s:O}", "stream", streams[i], "data", json_object_get(answer, streams[i]));

        good = good && line && ctl_show_output(&s->show, line);
    }
    for (size_t i = 0; good && i < json_array_size(shown); i++)
        good = ctl_show_data(&s->show, json_object_get(json_array_get(shown, i), "data"));
    if (good && raised)
        ctl_show_exception(&s->show, raised);
    if (!s->show.quiet && json_is_true(json_object_get(answer, "cached")))
        report_note("cached result of an earlier run");
    s->ended_execution = json_incref(answer);
}

static int ctl_execute_exit_status(const struct ctl *c, const json_t *end, struct err *err)
{
    const json_t *why = json_object_get(end, "error");
    int bad = ctl_execute_save_files(c, end, err);

    if (bad)
        return -1;
    if (why && !str_eq(ctl_field_text(end, "outcome"), "lost")) { /* its interpreter ended */
        if (!str_eq(ctl_field_text(end, "outcome"), "out_of_memory") && !c->quiet)
            report_note("%s", ctl_field_text(why, "message"));
        ctl_note_end(c, end);
        return ctl_exit_status(end);
    }
    if (why) {
        enum err_id id = err_by_code(ctl_field_text(why, "code"));

        return err_set(err, id == ERR_NONE ? ERR_BUG : id, "%.220s", ctl_field_text(why, "message"));
    }
    ctl_note_end(c, end);
    return ctl_exit_status(end);
}

static void ctl_execute_on_signal(void *arg UNUSED, int signo)
{
    _exit(128 + signo); /* the server sees the closed connection and ends the program */
}

int ctl_execute(struct ctl *c, struct err *err)
{
    const struct arg *to = args_find(&c->args, OPT_SAVE);
    struct ctl_execute_stream s = { .show = { .quiet = c->quiet, .save = to ? to->value : NULL, .name = "shown" } };
    AUTO_JSON *body = json_object(), *answer = NULL;
    sigset_t set;

    if (ctl_execute_make_body(c, body, err) < 0)
        return -1;
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    if (c->json) {
        if (client_json(c->client, "POST", "/v1/execute", text, &answer, err) < 0 || ctl_print_json(answer) < 0 ||
            ctl_receipt_write(c, json_object_get(answer, "receipt"), err) < 0)
            return -1;
        return ctl_exit_status(answer);
    }
    if (to && mkdir(to->value, 0777) < 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "%.160s", to->value);
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    if (ev_signals(c->ev, &set, ctl_execute_on_signal, c, err) < 0)
        return -1;
    int bad = 0;
    if (!args_find(&c->args, OPT_CACHE) && !args_find(&c->args, OPT_TIER))
        bad = client_json_lines(c->client, "POST", "/v1/execute", text, ctl_execute_on_line, &s, err);
    else if ((bad = client_json(c->client, "POST", "/v1/execute", text, &answer, err)) == 0)
        ctl_execute_show_answer(&s, answer);
    if (!bad && s.show.err.id != ERR_NONE) {
        *err = s.show.err;
        bad = -1;
    }
    if (!bad && !s.ended_execution)
        bad = err_set(err, ERR_CUT_OFF, "the connection was lost, which ended the program; run it again");
    if (!bad)
        ctl_show_end(&s.show);
    int status = bad ? -1 : ctl_execute_exit_status(c, s.ended_execution, err);
    if (status >= 0 && ctl_receipt_write(c, json_object_get(s.ended_execution, "receipt"), err) < 0)
        status = -1;
    json_decref(s.ended_execution);
    return status;
}
