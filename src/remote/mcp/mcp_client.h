/* mcp_client.h - a client of one MCP server, over Streamable HTTP or two descriptors (stdio).
 *
 * The client speaks revision 2026-07-28 ("modern": stateless) and the revisions up to 2025-11-25
 * ("legacy": initialize and sessions), and finds out which one the server speaks. Calls may
 * start at once; they wait until the server is open.
 *
 * The server is not trusted: each size, count and time is bounded, and requests of the server
 * are refused unless the caller answers them. A tool whose definition changed after it was
 * listed is not called until it is listed again.
 *
 * No callback runs inside the call that caused it. on_done, on_ready and on_closed may free the
 * client; the other callbacks must not. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"

#include <jansson.h>

#define MCP_CALLS_MAX 64u              /* at the same time */
#define MCP_CALL_BYTES_MAX (64u * MIB) /* of all messages that belong to one call */
#define MCP_PAGES_MAX 100u             /* of one list */
#define MCP_ITEMS_MAX 2000u            /* of one list */
#define MCP_LIST_BYTES_MAX (16u * MIB)
#define MCP_NOISE_MAX 1000u /* messages that answer nothing, until the server is given up */
#define MCP_ROUNDS_MAX 10u  /* of questions during one call */
#define MCP_QUESTIONS_MAX 16u
#define MCP_STATE_MAX (256u * KIB) /* of the state that a server keeps with the client */

enum mcp_era { MCP_ERA_UNKNOWN, MCP_ERA_MODERN, MCP_ERA_LEGACY };

struct mcp_client;
struct mcp_client_call;
struct mcp_question;

struct mcp_client_spec {
    /* HTTP: url is not NULL. */
    const char *url;
    const char *const *headers; /* "Name: value", NULL-terminated, or NULL */
    const char *unix_socket;    /* as in fetch.h */
    const char *cacert;
    /* stdio: output and input of the server's process. The client takes both. */
    int in_fd, out_fd;
    enum mcp_era era;     /* of an earlier client of this server; MCP_ERA_UNKNOWN: find out */
    uint32_t open_ms;     /* until the server is open; 0: 30 s */
    uint32_t discover_ms; /* until a server that does not answer counts as legacy; 0: 3 s */
    bool answers_elicitation, answers_sampling, answers_roots; /* by on_question */
    bool watches_tools;                                        /* keep a stream open for on_tools_changed */
};

struct mcp_client_ops { /* each may be NULL */
    /* Once: the server is open, or cannot be opened. */
    void (*on_ready)(void *arg, const struct err *err);
    /* The server ended after it was open. The last callback. */
    void (*on_closed)(void *arg, const struct err *err);
    void (*on_tools_changed)(void *arg);
    void (*on_log)(void *arg, const char *level, const char *text);
    /* The receiver answers or refuses each question exactly once, now or later. */
    void (*on_question)(void *arg, struct mcp_question *q);
};

int mcp_client_new(struct ev *ev, const struct mcp_client_spec *spec, const struct mcp_client_ops *ops, void *arg,
                   struct mcp_client **ret, struct err *err);
/* Ends its calls without a callback and closes the connection. */
void mcp_client_free(struct mcp_client *c);
DEFINE_AUTO(mcp_client, mcp_client_free);
/* Asks a legacy server over HTTP to end the session. A caller that frees the client next turns the
 * loop while a message is on its way. */
void mcp_client_end_session(struct mcp_client *c);
bool mcp_client_is_sending(const struct mcp_client *c); /* a notification, an answer or the end */

/* Valid once the server is open. */
enum mcp_era mcp_client_era(const struct mcp_client *c);
const char *mcp_client_version(const struct mcp_client *c);        /* of the protocol */
const json_t *mcp_client_capabilities(const struct mcp_client *c); /* of the server */
const char *mcp_client_instructions(const struct mcp_client *c);   /* cleaned; NULL: none */

/* --- calls --- */

enum mcp_client_call_kind {
    MCP_LIST_TOOLS,
    MCP_LIST_RESOURCES,
    MCP_LIST_TEMPLATES, /* of resources */
    MCP_LIST_PROMPTS,
    MCP_CALL_TOOL,
    MCP_READ_RESOURCE,
    MCP_GET_PROMPT,
    /* Of the client itself. */
    MCP_DISCOVER,
    MCP_INITIALIZE,
    MCP_LISTEN,
    MCP_REQUEST_KIND_COUNT,
};

struct mcp_progress {
    double progress, total; /* total is 0 if it is unknown */
    const char *message;    /* cleaned; "" if none */
};

struct mcp_client_call_spec {
    enum mcp_client_call_kind method;
    const char *name;        /* of the tool or prompt, or URI of the resource; NULL for lists */
    const json_t *arguments; /* an object, or NULL; referenced */
    uint32_t timeout_ms;     /* for the whole call; 0: 60 s */
};

struct mcp_client_call_ops {
    void (*on_progress)(void *arg, const struct mcp_progress *p); /* NULL: do not ask for progress */
    /* Once; the call is freed. The result is borrowed. Of a list: {"tools"|"resources"|
     * "resourceTemplates"|"prompts": [...]} of all pages, for tools also "dropped": [{"name",
     * "reason"}]. Of a tool: `content`, `structuredContent`, `isError`. */
    void (*on_done)(void *arg, const json_t *result, const struct err *err);
};

int mcp_client_call_start(struct mcp_client *c, const struct mcp_client_call_spec *spec,
                          const struct mcp_client_call_ops *ops, void *arg, struct mcp_client_call **ret,
                          struct err *err);
/* Cancels it also at the server. No callback follows. */
void mcp_client_call_cancel(struct mcp_client_call *call);

/* --- requests of the server --- */

const char *mcp_question_method(const struct mcp_question *q); /* such as "elicitation/create" */
const json_t *mcp_question_params(const struct mcp_question *q);
/* Both free the question. They have no other effect after its call or its client has ended.
 * mcp_question_answer takes the result. */
void mcp_question_answer(struct mcp_question *q, json_t *result);
void mcp_question_refuse(struct mcp_question *q);
