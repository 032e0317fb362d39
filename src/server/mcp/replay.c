/* Messages of a stream, kept so that a client whose connection broke can resume it with
 * Last-Event-ID. The id of an event is "STREAM-NUMBER", unique in its session.
 *
 * Memory is bounded per session and for the server: beyond it, the oldest streams of the session
 * are forgotten, and a client that asks for one gets 404. */
#include "server/mcp/mcp_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "server/gateway/unread_responses.h"

#include <stdio.h>

#define MCP_REPLAY_SESSION_BYTES (1 * MIB)
#define MCP_REPLAY_SERVER_BYTES (64 * MIB)
#define MCP_REPLAY_STREAMS_MAX 32u
#define MCP_REPLAY_KEEP_NS (60 * NS_PER_S)

struct mcp_replay_message {
    char *text;
    uint64_t number;
};

struct mcp_replay {
    struct mcp_session *session;
    struct mcp_replay *next; /* of the session, newest first */
    uint64_t stream, numbers;
    struct mcp_replay_message *messages;
    size_t nmessages, bytes;
    struct mcp_server_call *call; /* NULL: no message follows */
    uint64_t finished_ns;
    char id[48];
};

struct mcp_replay *mcp_replay_new(struct mcp_server_call *c)
{
    struct mcp_replay *r = mem_new(struct mcp_replay);

    r->session = c->session;
    r->call = c;
    r->stream = ++c->session->streams;
    list_push(&c->session->replays, r);
    return r;
}

void mcp_replay_free(struct mcp_replay *r)
{
    list_remove(&r->session->replays, r);
    if (r->call)
        r->call->replay = NULL;
    r->session->mcp->replay_bytes -= r->bytes;
    for (size_t i = 0; i < r->nmessages; i++)
        free(r->messages[i].text);
    free(r->messages);
    free(r);
}

/* Forgets the oldest streams until the session is within its bounds. */
static void mcp_replays_trim(struct mcp_session *s)
{
    bool is_full = s->mcp->replay_bytes > MCP_REPLAY_SERVER_BYTES;
    size_t bytes = 0, n = 0;
    struct mcp_replay *next;

    for (struct mcp_replay *r = s->replays; r; r = next) {
        next = r->next;
        bytes += r->bytes;
        n++;
        if (is_full || bytes > MCP_REPLAY_SESSION_BYTES || n > MCP_REPLAY_STREAMS_MAX)
            mcp_replay_free(r);
    }
}

void mcp_replay_add(struct mcp_server_call *c, const char *message, char ret_id[MCP_EVENT_ID_SIZE])
{
    struct mcp_replay *r = c->replay;

    snprintf(ret_id, MCP_EVENT_ID_SIZE, "%" PRIu64 "-%" PRIu64, r->stream, ++r->numbers);
    r->messages = mem_resize(r->messages, r->nmessages + 1, sizeof(*r->messages));
    r->messages[r->nmessages++] = (struct mcp_replay_message){ .text = str_dup(message), .number = r->numbers };
    size_t added = strlen(message) + sizeof(*r->messages);
    r->bytes += added;
    c->mcp->replay_bytes += added;
    mcp_replays_trim(c->session);
}

void mcp_replay_finish(struct mcp_server_call *c)
{
    struct mcp_replay *r = take_ptr(&c->replay);

    if (!r)
        return;
    r->call = NULL;
    r->finished_ns = ev_now(c->mcp->settings.ev);
}

void mcp_replays_expire(struct mcp_session *s, uint64_t now_ns)
{
    struct mcp_replay *next;

    for (struct mcp_replay *r = s->replays; r; r = next) {
        next = r->next;
        if (!r->call && now_ns - r->finished_ns > MCP_REPLAY_KEEP_NS)
            mcp_replay_free(r);
    }
}

void mcp_replay_resume(struct http_req *req, struct mcp_session *s, const char *last_event_id)
{
    const char *p = last_event_id;
    uint64_t stream = 0, number = 0;
    struct mcp_replay *r = s->replays;
    char id[MCP_EVENT_ID_SIZE];
    struct err err = { 0 };

    if (!str_eat_u64(&p, UINT64_MAX - 1, &stream) || !str_eat(&p, "-") || !str_eat_u64(&p, UINT64_MAX - 1, &number) ||
        *p) {
        http_refuse(req, ERR_INVALID, "Last-Event-ID: not an id of this server; send the id of the last event");
        return;
    }
    while (r && r->stream != stream)
        r = r->next;
    if (!r) {
        http_refuse(req, ERR_MISSING, "Last-Event-ID: the stream is no longer kept; repeat the request");
        return;
    }
    if (unread_responses_check(s->mcp->settings.gateway, s->owner, &err) < 0) {
        http_set_header(req, "Retry-After", "1");
        http_answer_err(req, &err);
        return;
    }
    unread_responses_add(req, s->mcp->settings.gateway, s->owner, r->bytes);
    http_answer_events(req);
    for (size_t i = 0; i < r->nmessages; i++) {
        if (r->messages[i].number <= number)
            continue;
        snprintf(id, sizeof(id), "%" PRIu64 "-%" PRIu64, stream, r->messages[i].number);
        http_stream_event(req, id, NULL, r->messages[i].text);
    }
    if (r->call)
        mcp_server_call_attach(r->call, req);
    else
        http_stream_end(req);
}
