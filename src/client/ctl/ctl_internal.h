/* ctl_internal.h - what the verbs share, and nobody else sees. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/id.h"
#include "client/cli/args.h"
#include "client/client.h"
#include "client/login.h"
#include "core/ev/ev.h"

#include <jansson.h>

struct ctl {
    struct ev *ev;
    struct client *client; /* login and logout begin without one */
    struct args args;
    bool json, quiet;
};

/* Verbs. Each returns 0, an exit status of its own, or -1 with *err. */
int ctl_sandbox(struct ctl *c, const char *what, struct err *err);
int ctl_exec(struct ctl *c, struct err *err);
int ctl_execute(struct ctl *c, struct err *err);
int ctl_context(struct ctl *c, const char *what, struct err *err);
int ctl_attach(struct ctl *c, struct err *err);
int ctl_cp(struct ctl *c, struct err *err);
int ctl_logs(struct ctl *c, struct err *err);
int ctl_watch(struct ctl *c, struct err *err);
int ctl_events(struct ctl *c, struct err *err);
int ctl_usage(struct ctl *c, struct err *err);
int ctl_budget(struct ctl *c, const char *what, struct err *err);
int ctl_top(struct ctl *c, struct err *err);
int ctl_gc(struct ctl *c, struct err *err);
int ctl_audit(struct ctl *c, const char *what, struct err *err);
int ctl_ps(struct ctl *c, struct err *err);
int ctl_key(struct ctl *c, const char *what, struct err *err);
int ctl_pool(struct ctl *c, const char *what, struct err *err);
int ctl_tenant(struct ctl *c, const char *what, struct err *err);
int ctl_user(struct ctl *c, const char *what, struct err *err);
int ctl_role(struct ctl *c, const char *what, struct err *err);
int ctl_token(struct ctl *c, const char *what, struct err *err);
int ctl_login(struct ctl *c, struct err *err);
int ctl_device_login(struct ctl *c, struct login *l, struct err *err); /* fills in the token; l->url is there */
int ctl_logout(struct ctl *c, struct err *err);
int ctl_whoami(struct ctl *c, struct err *err);

/* Exactly min to max words besides the flags; otherwise an error that shows how the verb is used. */
int ctl_require_args(const struct ctl *c, int min, int max, const char *usage, struct err *err);
/* The path with each "%s" replaced by a word, escaped: ctl_api_path("/v1/sandboxes/%s", id, NULL). The caller frees. */
char *ctl_api_path(const char *form, ...);

/* The sandbox that a word means: a whole id, or the beginning of one. The caller frees *ret. */
int ctl_resolve_sandbox(struct ctl *c, const char *word, char **ret, struct err *err);
/* The user that a word means: an id, or a name in the tenant of --tenant, or one's own. The caller frees *ret. */
int ctl_resolve_user(struct ctl *c, const char *word, char **ret, struct err *err);
/* A path in a sandbox: a relative one starts at /workspace. The caller frees it. */
char *ctl_sandbox_path(const char *path);
bool ctl_is_sandbox_id_prefix(const char *word, size_t len); /* whether the first len letters could be one */

/* What is in a directory here into one of a sandbox, which is made; and an archive at `path` of the interface into one
 * here that does not exist yet. */
int ctl_tree_upload(struct ctl *c, const char *dir, const char *sandbox, const char *to, struct err *err);
int ctl_tree_download(struct ctl *c, const char *path, const char *to, struct err *err);

/* Answers on standard output. */
int ctl_print_json(const json_t *answer);
char *ctl_json_text(const json_t *v); /* for standard output, on one line; the caller frees it */
/* A line for people. What it quotes was written by the server or by others who use it, so it steers no terminal. */
#define ctl_printf(...) ctl_print_line(str_printf(__VA_ARGS__))
void ctl_print_line(char *text);                                   /* takes it */
const char *ctl_field_text(const json_t *object, const char *key); /* "" without it */
uint64_t ctl_field_number(const json_t *object, const char *key);  /* 0 without it */

/* "3m ago" or "in 2h" for a moment of an answer, and the text itself when it is none. For people only. */
#define CTL_AGE 40
const char *ctl_age(const char *moment, uint64_t now_ms, char buf[CTL_AGE]);

/* A table for people: columns as wide as they must be, the first row in capitals. */
struct ctl_table {
    size_t columns;
    size_t n;
    char **cells;
};
#define ctl_table_row(t, ...) \
    ctl_table_add_row(t, (const char *const[]){ __VA_ARGS__, NULL }) /* one text for each column */
void ctl_table_add_row(struct ctl_table *t, const char *const *cells);
int ctl_table_print(struct ctl_table *t); /* and frees it */

/* All pages of a list: calls each for every member of the array `key`. */
int ctl_for_each_item(struct ctl *c, const char *path, const char *key, void (*each)(void *arg, const json_t *item),
                      void *arg, struct err *err);

/* name=value pairs of a repeated flag as an object; NULL when the flag was not given. from_env: a name alone takes the
 * caller's own value. */
int ctl_read_pairs(const struct ctl *c, int opt, bool from_env, json_t **ret, struct err *err);
/* "1m", "256M" or "0.5" of a flag into body[key], held to the range of the limit; nothing when it was not given. */
int ctl_set_limit(const struct ctl *c, int opt, enum limit l, json_t *body, const char *key, struct err *err);
int ctl_set_resources(const struct ctl *c, json_t *body, struct err *err); /* --memory, --cpus, --pids, --disk */
void ctl_set_text(const struct ctl *c, int opt, json_t *body, const char *key);

/* Follows an execution to its end: writes its output to ours and keeps the offsets, so that a connection that breaks is
 * taken up where it was. *ret_end is the execution as it ended; the caller frees it. */
struct ctl_stdin_feed;
struct ctl_follow {
    struct ctl *c;
    char *sandbox, *execution;
    bool is_muted;       /* output is not written here */
    bool forwards_stdin; /* our standard input goes to it, from `started` on */
    struct ctl_stdin_feed *feed;
    uint64_t offset[2];
    json_t *ended_execution;
    struct err err;
};
bool ctl_follow_line(void *arg, const json_t *line); /* one event of a stream */
int ctl_follow(struct ctl_follow *f, struct err *err);
void ctl_decode_base64(struct buf *out, const char *base64); /* adds the bytes */

/* Sends our standard input to an execution while the loop turns. An error of it interrupts what the client waits for.
 */
struct ctl_stdin_feed *ctl_stdin_feed_new(struct ctl *c, const char *sandbox, const char *execution);
void ctl_stdin_feed_free(struct ctl_stdin_feed *f);
const struct err *ctl_stdin_feed_error(const struct ctl_stdin_feed *f); /* NULL: none */

/* Our terminal becomes that of an execution with tty, until it ends or is left: an exit status, or -1. */
int ctl_terminal(struct ctl *c, const char *sandbox, const char *execution, struct err *err);
int ctl_require_terminal(const char *verb, struct err *err);

/* On standard error, why the program did not end by itself; nothing when it did. */
void ctl_note_end(const struct ctl *c, const json_t *execution);
int ctl_exit_status(const json_t *execution); /* as `cove run` would end */
