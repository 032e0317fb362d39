/* POST .../executions/{executionId}/resize and /signal: control of a terminal besides its input. A
 * terminal is an execution with tty. It continues without viewers, and all viewers see the same
 * output. The last size set by any viewer applies. */
#include "server/api/api_internal.h"

#include "core/base/str.h"

#include <signal.h>

struct terminal_request {
    struct http_req *req;
    struct api *api;
    const char *sandbox; /* valid as long as the request */
    uint16_t rows, cols;
    int signo; /* 0: the request is a resize */
};

int terminal_read_signal(const json_t *body, int *ret, struct err *err)
{
    static const struct {
        const char *name;
        int signo;
    } names[] = { { "HUP", SIGHUP },   { "INT", SIGINT },   { "QUIT", SIGQUIT },  { "KILL", SIGKILL },
                  { "USR1", SIGUSR1 }, { "USR2", SIGUSR2 }, { "TERM", SIGTERM },  { "CONT", SIGCONT },
                  { "STOP", SIGSTOP }, { "TSTP", SIGTSTP }, { "WINCH", SIGWINCH } };
    const json_t *v = json_object_get(body, "signal");
    const char *p = json_string_value(v);

    if (json_is_integer(v) && json_integer_value(v) >= 1 && json_integer_value(v) <= 64) {
        *ret = (int)json_integer_value(v);
        return 0;
    }
    if (p)
        (void)str_eat(&p, "SIG");
    for (size_t i = 0; p && i < ARRAY_LEN(names); i++)
        if (str_eq(p, names[i].name)) {
            *ret = names[i].signo;
            return 0;
        }
    return err_set(
        err, ERR_INVALID,
        "signal: must be HUP, INT, QUIT, KILL, USR1, USR2, TERM, CONT, STOP, TSTP, WINCH or a number from 1 to 64");
}

static int terminal_request_apply(const struct terminal_request *o, const struct store_execution *row, struct err *err)
{
    if (!str_eq(row->sandbox, o->sandbox))
        return err_set(err, ERR_MISSING, "there is no such execution in this sandbox");
    if (row->ended_ms)
        return err_set(err, ERR_EXISTS, "execution %s has ended", row->id);
    auto_(execution_watch) w = manager_watch_execution(o->api->settings.manager, gateway_visible_owner(o->req),
                                                       o->sandbox, row->id, NULL, NULL);
    if (!w)
        return err_set(err, ERR_BUSY, "the server has just started and is still recovering its executions; try again");
    if (o->signo)
        execution_watch_signal(w, o->signo);
    else if (!execution_watch_resize(w, o->rows, o->cols))
        return err_set(err, ERR_EXISTS, "execution %s is not a terminal: it was started without tty", row->id);
    return 0;
}

static void terminal_request_on_row(void *arg, const struct err *err, const struct store_execution *row)
{
    struct terminal_request *o = arg;
    struct err why = { 0 };

    if (err || terminal_request_apply(o, row, &why) < 0)
        http_answer_err(o->req, err ? err : &why);
    else
        follow_answer_row(o->req, o->api, 200, row, (struct execution_view){ 0 });
}

static void terminal_request_begin(struct terminal_request *o, const json_t *body, const char *const *names)
{
    struct err err = { 0 };
    const char *id;

    if (http_query_require_none(o->req, &err) < 0 || json_input_require_known_fields(body, "", names, &err) < 0 ||
        api_read_sandbox_id(o->req, &o->sandbox, &err) < 0 || api_read_execution_id(o->req, &id, &err) < 0)
        http_answer_err(o->req, &err);
    else
        store_execution_get(o->api->settings.store, gateway_visible_owner(o->req), id, terminal_request_on_row, o);
}

static struct terminal_request *terminal_request_new(struct http_req *req, struct api *api)
{
    struct terminal_request *o = api_request_new(req, struct terminal_request);

    o->req = req;
    o->api = api;
    return o;
}

void terminal_resize(struct http_req *req, void *ctx)
{
    struct terminal_request *o = terminal_request_new(req, ctx);
    auto_json *body = NULL;
    struct err err = { 0 };

    if (api_read_body(req, &body, &err) == 0 && execution_request_read_tty_size(body, &o->rows, &o->cols, &err) == 0 &&
        (!o->rows || !o->cols))
        err_set(&err, ERR_INVALID, "rows and cols are both required");
    if (err.id != ERR_NONE)
        http_answer_err(req, &err);
    else
        terminal_request_begin(o, body, (const char *const[]){ "rows", "cols", NULL });
}

void terminal_signal(struct http_req *req, void *ctx)
{
    struct terminal_request *o = terminal_request_new(req, ctx);
    auto_json *body = NULL;
    struct err err = { 0 };

    if (api_read_body(req, &body, &err) < 0 || terminal_read_signal(body, &o->signo, &err) < 0)
        http_answer_err(req, &err);
    else
        terminal_request_begin(o, body, (const char *const[]){ "signal", NULL });
}
