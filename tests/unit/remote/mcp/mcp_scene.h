/* mcp_scene.h - a client of MCP and a scripted server over a socket pair, in one event loop.
 *
 * The script of a test answers each message of the client. Everything that the client sent is in
 * `log`, one method per word, with "=" for an answer. */
#pragma once

#include "tests/unit/test.h"

#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/mcp/mcp_client.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

struct scene {
    struct ev *ev;
    struct mcp_client *client;
    int fd; /* the server's side; -1: closed */
    struct ev_io io;
    struct buf input, log;
    void (*script)(struct scene *s, const char *method, json_t *message);
    const char *tools; /* JSON text of the list in scene_answer() */
    unsigned count;    /* for scripts */
    bool is_ready, is_closed, is_modern;
    unsigned tools_changed, progress, questions;
    struct err ready_err, closed_err;
    /* Of the last call. */
    bool is_done;
    json_t *result;
    struct err err;
};

#define DISCOVERED                                                                                                     \
    "{\"resultType\":\"complete\",\"supportedVersions\":[\"2026-07-28\"],\"capabilities\":{\"tools\":{}},\"ttlMs\":0," \
    "\"cacheScope\":\"private\"}"
#define INITIALIZED                                                                                                   \
    "{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}},\"serverInfo\":{\"name\":\"s\",\"version\":" \
    "\"1\"}}"
#define ONE_TOOL "{\"name\":\"add\",\"description\":\"adds\",\"inputSchema\":{\"type\":\"object\"}}"
#define TEXT_RESULT "{\"resultType\":\"complete\",\"content\":[{\"type\":\"text\",\"text\":\"5\"}]}"

static inline void scene_send_raw(struct scene *s, const char *text)
{
    if (s->fd >= 0)
        (void)fd_write_all(s->fd, text, strlen(text));
}

static inline void scene_send(struct scene *s, const char *text)
{
    auto_free char *line = str_printf("%s\n", text);

    scene_send_raw(s, line);
}

static inline json_int_t scene_id(const json_t *message)
{
    return json_integer_value(json_object_get(message, "id"));
}

static inline void scene_result(struct scene *s, const json_t *message, const char *result)
{
    auto_free char *text = str_printf("{\"jsonrpc\":\"2.0\",\"id\":%" JSON_INTEGER_FORMAT ",\"result\":%s}",
                                      scene_id(message), result);

    scene_send(s, text);
}

static inline void scene_error(struct scene *s, const json_t *message, int code, const char *data)
{
    auto_free char *text = str_printf("{\"jsonrpc\":\"2.0\",\"id\":%" JSON_INTEGER_FORMAT
                                      ",\"error\":{\"code\":%d,\"message\":\"no\\u001b[2J\"%s%s}}",
                                      scene_id(message), code, data ? ",\"data\":" : "", data ? data : "");

    scene_send(s, text);
}

static inline const char *scene_param(const json_t *message, const char *key)
{
    const char *text = json_string_value(json_object_get(json_object_get(message, "params"), key));

    return text ? text : "";
}

/* The handshake and the tools, for scripts that are about something else. */
static inline bool scene_answer(struct scene *s, const char *method, json_t *message)
{
    if (str_eq(method, "server/discover") && s->is_modern) {
        scene_result(s, message, DISCOVERED);
    } else if (str_eq(method, "server/discover")) {
        scene_error(s, message, -32601, NULL);
    } else if (str_eq(method, "initialize")) {
        scene_result(s, message, INITIALIZED);
    } else if (str_eq(method, "tools/list")) {
        auto_free char *list = str_printf("{\"tools\":[%s]}", s->tools ? s->tools : ONE_TOOL);
        scene_result(s, message, list);
    } else {
        return str_eq(method, "notifications/initialized");
    }
    return true;
}

static inline void scene_on_message(struct scene *s, const char *text, size_t len)
{
    json_t *message = json_loadb(text, len, 0, NULL);
    const char *method = json_string_value(json_object_get(message, "method"));

    assert_non_null(message);
    buf_addf(&s->log, "%s ", method ? method : "=");
    if (s->script)
        s->script(s, method ? method : "=", message);
    json_decref(message);
}

static inline void scene_on_input(void *arg, uint32_t events UNUSED)
{
    struct scene *s = arg;
    char data[65536];
    ssize_t n = read(s->fd, data, sizeof(data));
    char *feed;

    if (n <= 0) {
        ev_io_del(s->ev, &s->io);
        return;
    }
    buf_add(&s->input, data, (size_t)n);
    while ((feed = memchr(s->input.data, '\n', s->input.len))) {
        size_t len = (size_t)(feed - s->input.data);
        auto_free char *line = str_dup_n(s->input.data, len);

        buf_drop(&s->input, len + 1);
        scene_on_message(s, line, len);
    }
}

static inline void scene_close_server(struct scene *s)
{
    ev_io_del(s->ev, &s->io);
    fd_close(&s->fd);
}

static inline void scene_on_ready(void *arg, const struct err *err)
{
    struct scene *s = arg;

    s->is_ready = true;
    if (err)
        s->ready_err = *err;
}

static inline void scene_on_closed(void *arg, const struct err *err)
{
    struct scene *s = arg;

    s->is_closed = true;
    s->closed_err = *err;
}

static inline void scene_on_tools_changed(void *arg)
{
    ((struct scene *)arg)->tools_changed++;
}

static inline void scene_on_question(void *arg, struct mcp_question *q)
{
    ((struct scene *)arg)->questions++;
    mcp_question_answer(q, json_pack("{s:s, s:{}}", "action", "accept", "content"));
}

static const struct mcp_client_ops scene_ops = { .on_ready = scene_on_ready,
                                                 .on_closed = scene_on_closed,
                                                 .on_tools_changed = scene_on_tools_changed,
                                                 .on_question = scene_on_question };

/* The server alone; returns the client's side of the connection. */
static inline int scene_open_server(struct scene *s)
{
    struct err err = { 0 };
    int fds[2];

    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    s->fd = fds[0];
    assert_int_equal(ev_io_add(s->ev, &s->io, s->fd, EPOLLIN, scene_on_input, s, &err), 0);
    return fds[1];
}

/* `spec` may be NULL. */
static inline void scene_start(struct scene *s, const struct mcp_client_spec *spec)
{
    struct mcp_client_spec own = spec ? *spec : (struct mcp_client_spec){ 0 };
    struct err err = { 0 };

    assert_int_equal(ev_new(&s->ev, &err), 0);
    own.in_fd = own.out_fd = scene_open_server(s);
    assert_int_equal(mcp_client_new(s->ev, &own, &scene_ops, s, &s->client, &err), 0);
}

static inline void scene_stop(struct scene *s)
{
    mcp_client_free(s->client);
    scene_close_server(s);
    ev_free(s->ev);
    buf_done(&s->input);
    buf_done(&s->log);
    json_decref(s->result);
}

static inline void scene_turn_until(struct scene *s, const bool *flag)
{
    uint64_t end = clock_mono_ns() + 20 * NS_PER_S;

    while (!*flag && clock_mono_ns() < end)
        ev_turn(s->ev, 50);
    if (!*flag)
        fail_msg("not reached; the client sent: %s", s->log.data ? s->log.data : "");
}

static inline void scene_on_progress(void *arg, const struct mcp_progress *p UNUSED)
{
    ((struct scene *)arg)->progress++;
}

static inline void scene_on_done(void *arg, const json_t *result, const struct err *err)
{
    struct scene *s = arg;

    assert_false(s->is_done);
    assert_true((result != NULL) != (err != NULL));
    s->is_done = true;
    s->result = result ? json_incref((json_t *)result) : NULL;
    if (err)
        s->err = *err;
}

static inline struct mcp_client_call *scene_begin(struct scene *s, enum mcp_client_call_kind method, const char *name,
                                                  uint32_t timeout_ms)
{
    static const struct mcp_client_call_ops ops = { scene_on_progress, scene_on_done };
    const struct mcp_client_call_spec spec = { .method = method, .name = name, .timeout_ms = timeout_ms };
    struct mcp_client_call *call = NULL;
    struct err err = { 0 };

    s->is_done = false;
    json_decref(s->result);
    s->result = NULL;
    s->err = (struct err){ 0 };
    if (mcp_client_call_start(s->client, &spec, &ops, s, &call, &err) == 0) {
        assert_false(s->is_done); /* completion callbacks run later */
        return call;
    }
    s->is_done = true;
    s->err = err;
    return NULL;
}

static inline void scene_call(struct scene *s, enum mcp_client_call_kind method, const char *name)
{
    scene_begin(s, method, name, 10000);
    scene_turn_until(s, &s->is_done);
}

static inline const char *scene_text(const struct scene *s)
{
    const json_t *block = json_array_get(json_object_get(s->result, "content"), 0);
    const char *text = json_string_value(json_object_get(block, "text"));

    return text ? text : "";
}

static inline void scene_expect(const struct scene *s, enum err_id id, const char *part)
{
    if (s->err.id != id || (part && !strstr(s->err.msg, part)))
        fail_msg("got %s: %s", err_info(s->err.id)->code, s->err.msg);
}
