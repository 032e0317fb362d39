/* tools.h - the tools that a language model calls: one table for REST, MCP and agents.
 *
 * A tool has a name, a description, and JSON schemas of its arguments and its result. A call takes
 * a JSON object and ends exactly once: refused with an error (unknown argument, missing sandbox,
 * quota), or with a result, which may itself say that the work failed (a program that exits with 1,
 * text that is not in the file). The result has the same content in two forms: JSON for programs
 * and text for a model. Both are bounded; what is missing is stated.
 *
 * Access control is the caller's task: each tool lists the rights that its caller must have. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"
#include "policy/policy.h"

#include <jansson.h>

struct executor;
struct manager;
struct script_cache;
struct store;
struct template_cache;
struct tools;
struct tool_call;

enum tool_place {
    TOOL_IN_SANDBOX, /* acts in a sandbox, which the call names */
    TOOL_IN_FRESH,   /* runs in a fresh sandbox of its own, which is removed afterwards */
    TOOL_ON_SERVER,  /* is answered by the server itself */
};

enum tool_right { /* bits */
                  TOOL_EXECUTES = 1,
                  TOOL_READS_FILES = 2,
                  TOOL_WRITES_FILES = 4,
                  TOOL_READS_SANDBOXES = 8, /* lists sandboxes and executions */
                  TOOL_MAKES_SANDBOXES = 16,
                  TOOL_READS_EXECUTIONS = 32, /* and scripts */
};

struct tool {
    const char *name;          /* [a-z_]+, at most 64 bytes */
    const char *title;         /* for people */
    const char *description;   /* for a model: what it does, its bounds, when to use another tool */
    const char *input_schema;  /* JSON Schema 2020-12 of the arguments, an object without the sandbox */
    const char *output_schema; /* the same of the JSON result */
    enum tool_place place;
    unsigned rights; /* bits of enum tool_right */
    /* Hints for a client, as MCP defines them. */
    bool is_read_only, is_destructive, is_idempotent, is_open_world;
};

/* The table, in a fixed order. */
const struct tool *tools_all(size_t *ret_count);
const struct tool *tool_find(const char *name); /* NULL: no such tool; aliases have rows of their own */

struct tools_settings { /* all pointers are borrowed and must outlive the tools */
    struct ev *ev;
    struct manager *manager;
    struct store *store;
    struct script_cache *script_cache;
    struct executor *executor; /* NULL: tools with TOOL_IN_FRESH are refused */
    struct template_cache *template_cache;
    const struct operator_limits *operator_limits; /* NULL: none */
    uint64_t output_bytes;                         /* text of a result is cut beyond this size */
    uint64_t timeout_ms;                           /* of programs whose call names none */
};

struct tools *tools_new(const struct tools_settings *set);
/* For shutdown, before the executor and the manager are finished: ends every call with an error
 * while its owner still exists. */
void tools_finish(struct tools *t);
void tools_free(struct tools *t); /* before executor and manager */
DEFINE_AUTO(tools, tools_free);

#define TOOLS_MAX 64u
struct tools_stats { /* counters since the start, in the order of the table */
    uint64_t succeeded[TOOLS_MAX], failed[TOOLS_MAX], refused[TOOLS_MAX], cancelled[TOOLS_MAX], truncated[TOOLS_MAX];
};
const struct tools_stats *tools_get_stats(const struct tools *t);

struct tool_request { /* borrowed until on_end */
    const struct tool *tool;
    const char *owner;       /* the tenant whose objects are visible */
    const char *tenant;      /* the tenant that owns new objects and whose quota they take */
    const char *created_by;  /* user or key id, for records */
    const char *request_id;  /* for the receipt; may be NULL */
    const char *sandbox;     /* TOOL_IN_SANDBOX: its id */
    const json_t *arguments; /* an object */
    /* The credential of the caller is for one sandbox: it neither sees nor adds scripts, which
     * belong to the tenant. */
    bool is_for_one_sandbox;
};

struct tool_image {
    const char *type; /* "image/png" */
    const char *data; /* base64 */
};

struct tool_result { /* borrowed for on_end */
    bool is_error;   /* the tool ran and its work failed */
    bool is_truncated;
    const char *text;
    const char *json; /* one JSON object, as output_schema describes */
    const struct tool_image *images;
    size_t nimages;
    const char *execution; /* id of the execution that it describes, or NULL */
};

struct tool_ops {
    /* Output of the program while it runs, for a display: at most 1 MiB of it; may be NULL.
     * It must not end the call. */
    void (*on_output)(void *arg, int channel, const void *data, size_t len);
    /* Called once, last, from the loop: either err or r is NULL. The call is gone when it
     * returns. */
    void (*on_end)(void *arg, const struct err *err, const struct tool_result *r);
};

/* -1: the arguments are wrong; no callback follows. */
int tool_call_start(struct tools *t, const struct tool_request *request, const struct tool_ops *ops, void *arg,
                    struct tool_call **ret, struct err *err);
/* Ends the work, kills the program. No callback follows. */
void tool_call_cancel(struct tool_call *c);
