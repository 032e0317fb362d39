/* Opening a server. The client asks server/discover first. A server that lists a modern version
 * in its answer, or refuses with an error that only modern servers know, is modern; any other
 * answer, and silence, mean initialize. A server that then refuses initialize as a modern one
 * does was only slow, and is asked once more.
 *
 * Over HTTP a legacy session may expire (404): the handshake runs again, and the call that found
 * out is repeated once. The server did not run it. */
#include "remote/mcp/mcp_client_internal.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

#define OPEN_MS 30000u
#define DISCOVER_MS 3000u
#define DISCOVER_TRIES_MAX 3u
#define INSTRUCTIONS_MAX 16384u

/* --- state --- */

static void mcp_client_on_state(void *arg)
{
    struct mcp_client *c = arg;
    const struct err err = c->err;
    bool is_closed = c->state == MCP_CLIENT_CLOSED, was_announced = c->is_announced;

    c->is_announced = true;
    if (!was_announced && c->ops.on_ready)
        c->ops.on_ready(c->arg, is_closed ? &err : NULL);
    else if (was_announced && is_closed && c->ops.on_closed)
        c->ops.on_closed(c->arg, &err);
}

static void mcp_client_stop(struct mcp_client *c)
{
    mcp_listen_stop(c);
    mcp_post_free_all(c);
    if (c->pipe)
        mcp_pipe_close(c->pipe);
}

void mcp_client_close(struct mcp_client *c, const struct err *err)
{
    if (c->state == MCP_CLIENT_CLOSED)
        return;
    c->state = MCP_CLIENT_CLOSED;
    c->err = *err;
    str_strip_control_chars(c->err.msg);
    for (struct mcp_client_call *call = c->calls; call; call = call->next)
        mcp_client_call_fail(call, &c->err);
    mcp_client_stop(c);
    ev_defer(c->ev, &c->state_defer, mcp_client_on_state, c);
}

static void mcp_client_set_ready(struct mcp_client *c)
{
    c->state = MCP_CLIENT_READY;
    for (struct mcp_client_call *call = c->calls; call; call = call->next)
        if (call->state == MCP_REQUEST_WAITING)
            mcp_client_call_proceed(call);
    if (!c->is_announced)
        ev_defer(c->ev, &c->state_defer, mcp_client_on_state, c);
}

static void mcp_client_discover(struct mcp_client *c)
{
    c->discover_tries++;
    c->has_discovered = true;
    mcp_client_call_start_internal(c, MCP_DISCOVER, c->discover_ms, NULL);
}

static void mcp_client_initialize(struct mcp_client *c)
{
    c->has_initialized = true;
    c->version[0] = '\0';
    free(take_ptr(&c->session));
    mcp_client_call_start_internal(c, MCP_INITIALIZE, c->open_ms, NULL);
}

void mcp_client_reopen(struct mcp_client *c)
{
    if (c->state != MCP_CLIENT_READY)
        return; /* another call found out first */
    c->state = MCP_CLIENT_OPENING;
    mcp_listen_stop(c);
    mcp_client_initialize(c);
}

/* --- the answers of the handshake --- */

static bool mcp_client_is_modern_error(json_int_t code)
{
    return code == MCP_UNSUPPORTED_VERSION || code == MCP_MISSING_CAPABILITY || code == MCP_HEADER_MISMATCH;
}

static bool mcp_client_lists_version(const json_t *versions, const char *version)
{
    const json_t *v;
    size_t i;

    json_array_foreach(versions, i, v) if (json_is_string(v) && str_eq(json_string_value(v), version)) return true;
    return false;
}

static void mcp_client_take_description(struct mcp_client *c, const json_t *result)
{
    const char *text = json_string_value(json_object_get(result, "instructions"));
    json_t *capabilities = json_object_get(result, "capabilities");

    json_decref(c->capabilities);
    c->capabilities = json_is_object(capabilities) ? json_incref(capabilities) : json_object();
    free(c->instructions);
    c->instructions = text ? mcp_clean_text(text, INSTRUCTIONS_MAX) : NULL;
}

static bool mcp_client_is_reachable_error(const struct err *err)
{
    return err->id != ERR_MCP_UNREACHABLE && err->id != ERR_TLS_UNTRUSTED && err->id != ERR_INVALID &&
           err->id != ERR_MCP_LIMIT;
}

void mcp_client_on_discover(struct mcp_client *c, const struct mcp_client_call *call)
{
    const json_t *versions = json_object_get(call->result, "supportedVersions");
    const json_t *supported = json_object_get(call->error_data, "supported");

    if (c->state != MCP_CLIENT_OPENING)
        return;
    if (mcp_client_lists_version(versions, MCP_VERSION_MODERN)) {
        c->era = MCP_ERA_MODERN;
        str_copy(c->version, sizeof(c->version), MCP_VERSION_MODERN);
        mcp_client_take_description(c, call->result);
        mcp_listen_start(c, mcp_client_set_ready);
    } else if (mcp_client_is_modern_error(call->error_code) && c->discover_tries < DISCOVER_TRIES_MAX &&
               (!json_is_array(supported) || mcp_client_lists_version(supported, MCP_VERSION_MODERN))) {
        mcp_client_discover(c);
    } else if (!c->has_initialized && (call->err.id == ERR_NONE || mcp_client_is_reachable_error(&call->err))) {
        c->era = MCP_ERA_LEGACY;
        mcp_client_initialize(c);
    } else {
        mcp_client_close(c, call->err.id != ERR_NONE ? &call->err : &c->err);
    }
}

static void mcp_client_on_initialized(struct mcp_client *c, int status)
{
    struct err err = { 0 };

    if (c->state != MCP_CLIENT_OPENING)
        return;
    if (status >= 0 && status < 400) {
        mcp_listen_start(c, mcp_client_set_ready);
        return;
    }
    err_set(&err, ERR_MCP_REFUSED, "notifications/initialized: the server refused it (HTTP status %d)", status);
    mcp_client_close(c, &err);
}

static bool mcp_client_knows_legacy(const char *version)
{
    static const char *const versions[] = { MCP_VERSION_LEGACY, "2025-06-18", "2025-03-26", "2024-11-05" };

    for (size_t i = 0; version && i < ARRAY_LEN(versions); i++)
        if (str_eq(version, versions[i]))
            return true;
    return false;
}

void mcp_client_on_initialize(struct mcp_client *c, const struct mcp_client_call *call)
{
    const char *version = json_string_value(json_object_get(call->result, "protocolVersion"));
    struct err err = { 0 };

    if (c->state != MCP_CLIENT_OPENING)
        return;
    if (mcp_client_knows_legacy(version)) {
        c->era = MCP_ERA_LEGACY;
        str_copy(c->version, sizeof(c->version), version);
        mcp_client_take_description(c, call->result);
        if (mcp_send_notification(c, "notifications/initialized", NULL, mcp_client_on_initialized, &err) < 0)
            mcp_client_close(c, &err);
    } else if (call->err.id == ERR_NONE) {
        err_set(&err, ERR_MCP_UNSUPPORTED,
                "initialize: the server chose version '%.20s'; this client knows " MCP_VERSION_MODERN
                ", " MCP_VERSION_LEGACY " and earlier",
                version ? version : "");
        mcp_client_close(c, &err);
    } else if (mcp_client_is_modern_error(call->error_code) && c->discover_tries < 2) {
        mcp_client_discover(c);
    } else {
        mcp_client_close(c, &call->err);
    }
}

/* --- lifecycle --- */

static void mcp_client_on_start(void *arg)
{
    struct mcp_client *c = arg;

    if (c->state == MCP_CLIENT_CLOSED)
        return;
    if (c->era == MCP_ERA_LEGACY)
        mcp_client_initialize(c);
    else
        mcp_client_discover(c);
}

static int mcp_client_connect(struct mcp_client *c, const struct mcp_client_spec *spec, struct err *err)
{
    const struct mcp_http_spec http = {
        .url = spec->url, .headers = spec->headers, .unix_socket = spec->unix_socket, .cacert = spec->cacert
    };

    if (spec->url)
        return mcp_http_new(c->ev, &http, &c->http, err);
    return mcp_pipe_new(c->ev, spec->in_fd, spec->out_fd, &mcp_client_pipe_ops, c, &c->pipe, err);
}

int mcp_client_new(struct ev *ev, const struct mcp_client_spec *spec, const struct mcp_client_ops *ops, void *arg,
                   struct mcp_client **ret, struct err *err)
{
    auto_(mcp_client) c = mem_new(struct mcp_client);

    c->ev = ev;
    c->ops = *ops;
    c->arg = arg;
    c->era = spec->era;
    c->open_ms = spec->open_ms ? spec->open_ms : OPEN_MS;
    c->discover_ms = spec->discover_ms ? spec->discover_ms : DISCOVER_MS;
    c->answers_elicitation = spec->answers_elicitation;
    c->answers_sampling = spec->answers_sampling;
    c->answers_roots = spec->answers_roots;
    c->watches_tools = spec->watches_tools;
    err_set(&c->err, ERR_MCP_UNSUPPORTED,
            "server/discover: the server knows neither " MCP_VERSION_MODERN " nor initialize");
    if (mcp_client_connect(c, spec, err) < 0)
        return -1;
    ev_defer(ev, &c->start_defer, mcp_client_on_start, c);
    *ret = take_ptr(&c);
    return 0;
}

void mcp_client_free(struct mcp_client *c)
{
    if (!c)
        return;
    while (c->calls)
        mcp_client_call_free(c->calls);
    mcp_question_drop_all(c, NULL);
    mcp_client_stop(c);
    mcp_http_free(c->http);
    mcp_pipe_free(c->pipe);
    ev_defer_clear(c->ev, &c->start_defer);
    ev_defer_clear(c->ev, &c->state_defer);
    mcp_tool_list_done(c);
    json_decref(c->capabilities);
    free(c->instructions);
    free(c->session);
    free(c);
}

enum mcp_era mcp_client_era(const struct mcp_client *c)
{
    return c->era;
}

const char *mcp_client_version(const struct mcp_client *c)
{
    return c->version;
}

const json_t *mcp_client_capabilities(const struct mcp_client *c)
{
    return c->capabilities;
}

const char *mcp_client_instructions(const struct mcp_client *c)
{
    return c->instructions;
}
