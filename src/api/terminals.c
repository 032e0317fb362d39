/* POST .../executions/{executionId}/resize and /signal: what a terminal does besides typing. A terminal is an execution
 * with tty; it lives on when nobody watches, and all who watch see the same. Its size is what was said last, by whom
 * ever. */
#include "api/inside.h"

#include "base/mem.h"
#include "base/str.h"

#include <signal.h>

struct order {
    struct http_req *req;
    struct api *api;
    const char *sandbox; /* lives as long as the request */
    uint16_t rows, cols;
    int signo; /* 0: it is a size */
};

int terminal_signo(const json_t *body, int *ret, struct err *err)
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
        "signal: it is HUP, INT, QUIT, KILL, USR1, USR2, TERM, CONT, STOP, TSTP, WINCH or a number from 1 to 64");
}

static int carry_out(const struct order *o, const struct store_execution *row, struct err *err)
{
    if (!str_eq(row->sandbox, o->sandbox))
        return err_set(err, ERR_MISSING, "there is no such execution in this sandbox");
    if (row->ended_ms)
        return err_set(err, ERR_EXISTS, "execution %s has ended", row->id);
    auto_(watch) w = manager_watch(o->api->set.manager, api_sees(o->req), o->sandbox, row->id, NULL, NULL);
    if (!w)
        return err_set(err, ERR_BUSY, "the server has just started and is still finding its executions");
    if (o->signo)
        watch_signal(w, o->signo);
    else if (!watch_resize(w, o->rows, o->cols))
        return err_set(err, ERR_EXISTS, "execution %s is no terminal: it was started without tty", row->id);
    return 0;
}

static void on_row(void *arg, const struct err *err, const struct store_execution *row)
{
    auto_free struct order *o = arg;
    struct err why = { 0 };

    if (err || carry_out(o, row, &why) < 0)
        http_answer_err(o->req, err ? err : &why);
    else
        follow_answer(o->req, o->api, 200, row, false);
}

static void begin(struct order *o, const json_t *body, const char *const *names)
{
    struct err err = { 0 };
    const char *id;

    if (api_no_query(o->req, &err) < 0 || body_only(body, "", names, &err) < 0 ||
        api_sandbox_id(o->req, &o->sandbox, &err) < 0 || api_execution_id(o->req, &id, &err) < 0) {
        http_answer_err(o->req, &err);
        free(o);
        return;
    }
    store_execution_get(o->api->set.store, api_sees(o->req), id, on_row, o);
}

static void refuse(struct order *o, const struct err *err)
{
    http_answer_err(o->req, err);
    free(o);
}

static struct order *order_new(struct http_req *req, struct api *api)
{
    struct order *o = mem_new(struct order);

    o->req = req;
    o->api = api;
    return o;
}

void terminal_resize(struct http_req *req, void *ctx)
{
    struct order *o = order_new(req, ctx);
    auto_json *body = NULL;
    struct err err = { 0 };

    if (api_body(req, &body, &err) == 0 && launch_size(body, &o->rows, &o->cols, &err) == 0 && (!o->rows || !o->cols))
        err_set(&err, ERR_INVALID, "a size is rows and cols");
    if (err.id != ERR_NONE)
        refuse(o, &err);
    else
        begin(o, body, (const char *const[]){ "rows", "cols", NULL });
}

void terminal_signal(struct http_req *req, void *ctx)
{
    struct order *o = order_new(req, ctx);
    auto_json *body = NULL;
    struct err err = { 0 };

    if (api_body(req, &body, &err) < 0 || terminal_signo(body, &o->signo, &err) < 0)
        refuse(o, &err);
    else
        begin(o, body, (const char *const[]){ "signal", NULL });
}
