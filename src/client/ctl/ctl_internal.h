/* ctl_internal.h - shared by the verbs, private to this directory. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"
#include "core/base/id.h"
#include "client/cli/args.h"
#include "client/cli/kept_sandboxes.h"
#include "client/ctl/show.h"
#include "client/client.h"
#include "client/login.h"
#include "core/ev/ev.h"

#include <jansson.h>

#define AUTO_JSON __attribute__((cleanup(json_decrefp))) json_t /* freed at the end of its scope */

struct ctl {
    struct ev *ev;
    struct client *client; /* NULL at the start of login, logout and mcp, and without a usable server */
    struct err no_client;  /* why client is NULL in a verb that also knows kept sandboxes */
    const struct kept_access *kept;
    const struct cli_verb *verb;
    struct args args;
    bool json, quiet;
    int signal; /* that ctl_catch_interrupt saw; 0: none */
};

/* The verbs. Each returns 0, an exit status, or -1 with *err. */
int ctl_ls(struct ctl *c, struct err *err);
int ctl_rm(struct ctl *c, struct err *err);
int ctl_shell(struct ctl *c, struct err *err);
int ctl_sandbox(struct ctl *c, const char *what, struct err *err);
int ctl_sandbox_connections(struct ctl *c, struct err *err);
int ctl_policy(struct ctl *c, const char *what, struct err *err);
int ctl_exec(struct ctl *c, struct err *err);
int ctl_execute(struct ctl *c, struct err *err);
int ctl_validate(struct ctl *c, struct err *err);
int ctl_context(struct ctl *c, const char *what, struct err *err);
int ctl_files(struct ctl *c, const char *what, struct err *err);
int ctl_template(struct ctl *c, const char *what, struct err *err);
int ctl_script(struct ctl *c, const char *what, struct err *err);
int ctl_secret(struct ctl *c, const char *what, struct err *err);
int ctl_attach(struct ctl *c, struct err *err);
int ctl_cp(struct ctl *c, struct err *err);
int ctl_logs(struct ctl *c, struct err *err);
int ctl_watch(struct ctl *c, struct err *err);
int ctl_events(struct ctl *c, struct err *err);
int ctl_usage(struct ctl *c, struct err *err);
int ctl_budget(struct ctl *c, const char *what, struct err *err);
int ctl_top(struct ctl *c, struct err *err);
int ctl_gc(struct ctl *c, struct err *err);
int ctl_mcp(struct ctl *c, const char *what, struct err *err);
int ctl_audit(struct ctl *c, const char *what, struct err *err);
int ctl_ps(struct ctl *c, struct err *err);
int ctl_key(struct ctl *c, const char *what, struct err *err);
int ctl_pool(struct ctl *c, const char *what, struct err *err);
int ctl_tenant(struct ctl *c, const char *what, struct err *err);
int ctl_user(struct ctl *c, const char *what, struct err *err);
int ctl_role(struct ctl *c, const char *what, struct err *err);
int ctl_token(struct ctl *c, const char *what, struct err *err);
int ctl_tool(struct ctl *c, const char *what, struct err *err);
int ctl_login(struct ctl *c, struct err *err);
int ctl_device_login(struct ctl *c, struct login *l, struct err *err); /* fills in the token; l->url is set */
int ctl_logout(struct ctl *c, struct err *err);
int ctl_whoami(struct ctl *c, struct err *err);
/* argv: "__complete", the verb, the words after it, the current word. Returns 0. */
int ctl_complete(struct ctl *c, int argc, char **argv);

/* Requires min to max arguments besides the flags; otherwise sets an error with the usage. */
int ctl_require_args(const struct ctl *c, int min, int max, const char *usage, struct err *err);
/* Calls the function of a subcommand; `noun` is that of the verb. The table ends with {NULL}. */
struct ctl_subcommand {
    const char *word;
    int (*fn)(struct ctl *c, struct err *err);
};
int ctl_run_subcommand(struct ctl *c, const struct ctl_subcommand *table, const char *noun, const char *word,
                       struct err *err);
/* Sends DELETE for each argument, whose path is `format` with the argument, and prints those that
 * were removed. */
int ctl_remove_each(struct ctl *c, const char *format, const char *usage, struct err *err);
/* Returns the path with each "%s" replaced by the next argument, escaped:
 * ctl_api_path("/v1/sandboxes/%s", id, NULL). The caller frees it. */
char *ctl_api_path(const char *form, ...);

/* An error if there is no client. */
int ctl_require_server(const struct ctl *c, struct err *err);

/* Resolves an ID, a name or a prefix of an ID to a sandbox of the server or a kept one. The caller
 * frees ret->id. */
struct ctl_sandbox_name {
    char *id;
    bool kept; /* on this host, by `cove run --keep` */
};
int ctl_find_sandbox(struct ctl *c, const char *word, struct ctl_sandbox_name *ret, struct err *err);
/* The same for verbs that need a sandbox of the server. The caller frees *ret. */
int ctl_resolve_sandbox(struct ctl *c, const char *word, char **ret, struct err *err);
/* Resolves an ID, or a name in the tenant of --tenant or the caller's own tenant, to a user. The
 * caller frees *ret. */
int ctl_resolve_user(struct ctl *c, const char *word, char **ret, struct err *err);
/* Makes an absolute path in a sandbox; a relative path starts at /workspace. The
 * caller frees it. */
char *ctl_sandbox_path(const char *path);
bool ctl_is_sandbox_id_prefix(const char *word, size_t len); /* whether the first len characters could be one */
bool ctl_is_sandbox_word(const char *word, size_t len);      /* the same for an ID, its prefix or a name */

void ctl_kept_list(struct ctl *c, void (*each)(void *arg, const char *id, uint64_t since_real_ns), void *arg);
int ctl_kept_remove(struct ctl *c, const char *id, struct err *err);
/* Runs argv with the flags of the command line for directory, environment and timeout. Returns the
 * exit status, or -1 with *err. */
int ctl_kept_exec(struct ctl *c, const char *id, const char *const *argv, bool tty, bool input, struct err *err);

/* A text table: columns are as wide as necessary, the first row is printed in capitals. */
struct ctl_table {
    size_t columns;
    size_t n;
    char **cells;
};
#define ctl_table_row(t, ...) \
    ctl_table_add_row(t, (const char *const[]){ __VA_ARGS__, NULL }) /* one string per column */
void ctl_table_add_row(struct ctl_table *t, const char *const *cells);
int ctl_table_print(struct ctl_table *t); /* also frees t */
void ctl_table_free(struct ctl_table *t);

/* Run a line of the shell with $1 = path in a kept sandbox; `fd` is its input or takes its
 * output. */
int ctl_kept_write(struct ctl *c, const char *id, const char *line, const char *path, int fd, struct err *err);
int ctl_kept_read(struct ctl *c, const char *id, const char *line, const char *path, int fd, struct err *err);

/* The sandboxes of the server, one table row each. Without `all` ended ones are left out. */
struct ctl_sandbox_listing {
    struct ctl_table table;
    uint64_t now_ms;
    json_t *items;
    bool all;
};
void ctl_sandbox_listing_init(struct ctl_sandbox_listing *l, bool all);
void ctl_sandbox_listing_add(void *arg, const json_t *sandbox);
int ctl_sandbox_listing_print(struct ctl *c, struct ctl_sandbox_listing *l); /* also frees l */

/* From now on Ctrl-C and SIGTERM interrupt the request that waits, so that the verb can clean up;
 * the exit status becomes 128 + signal. A second one ends the process. */
int ctl_catch_interrupt(struct ctl *c, struct err *err);
int ctl_check_interrupt(const struct ctl *c, struct err *err); /* an error after a signal */

/* Asks on the terminal, unless --yes was given. Returns 0, or -1 with an error if the answer is
 * no. */
int ctl_confirm(const struct ctl *c, const char *question, struct err *err);

/* Upload: copies the contents of a local directory to a directory of a sandbox, which is
 * created. Download: unpacks the archive at `path` of the API into a local directory, which
 * must not exist. */
int ctl_tree_upload(struct ctl *c, const char *dir, const char *sandbox, const char *to, struct err *err);
int ctl_tree_upload_kept(struct ctl *c, const char *dir, const char *sandbox, const char *to, struct err *err);
/* With `kept`, the ID of a kept sandbox, `path` is the directory in it. */
int ctl_tree_download(struct ctl *c, const char *kept, const char *path, const char *to, struct err *err);

/* Prints an answer on standard output. */
int ctl_print_json(const json_t *answer);
char *ctl_json_text(const json_t *v); /* one line for standard output; the caller frees it */
/* Prints a line. The text may quote untrusted data, so control characters are removed. */
#define ctl_printf(...) ctl_print_line(str_printf(__VA_ARGS__))
void ctl_print_line(char *text);                                   /* frees text */
const char *ctl_field_text(const json_t *object, const char *key); /* "" if missing */
uint64_t ctl_field_number(const json_t *object, const char *key);  /* 0 if missing */

/* Formats a timestamp of an answer as "3m ago" or "in 2h"; returns the text itself if it is
 * not a timestamp. */
#define CTL_AGE 40
const char *ctl_age(const char *moment, uint64_t now_ms, char buf[CTL_AGE]);

/* Reads all pages of a list and calls `each` for every item. */
int ctl_for_each_item(struct ctl *c, const char *path, void (*each)(void *arg, const json_t *item), void *arg,
                      struct err *err);

/* Collects the NAME=VALUE pairs of a repeated flag in the object body[key]; no effect if the flag
 * was not given. from_env: a bare NAME takes the value of the environment. */
int ctl_set_pairs(const struct ctl *c, int opt, bool from_env, json_t *body, const char *key, struct err *err);
/* Parses the flag of a limit, such as "1m", "256M" or "0.5", into body[key] and checks its range;
 * no effect if the flag was not given. */
int ctl_set_limit(const struct ctl *c, enum limit l, json_t *body, const char *key, struct err *err);
int ctl_set_resources(const struct ctl *c, json_t *body, struct err *err);  /* --memory, --cpus, --pids, --disk */
int ctl_set_run_limits(const struct ctl *c, json_t *body, struct err *err); /* --timeout, --cpu-time, --max-output */
void ctl_set_text(const struct ctl *c, int opt, json_t *body, const char *key);
/* --net, --allow and --deny, in their order, as body.network; no effect without them. */
int ctl_set_network(const struct ctl *c, json_t *body, struct err *err);
/* As lines of `cove sandbox info` or `cove template show`; `width` is that of the labels. */
void ctl_network_print(const json_t *network, int width);
/* The flags that a sandbox and a template have in common. */
int ctl_set_spec(const struct ctl *c, json_t *body, struct err *err);

/* The code of a request: sets body.code, from -c, from the file `path` or, for "-", from standard
 * input, and body.language. `path` is NULL if none was given. */
int ctl_put_code(struct ctl *c, const char *path, json_t *body, struct err *err);
int ctl_put_stdin(const struct ctl *c, json_t *body, struct err *err); /* body.stdin, with --stdin only */
int ctl_read_path(const char *path, size_t max, struct buf *ret, struct err *err);

/* --receipt: explains the receipt on standard error or writes it to a file; no effect without the
 * flag. */
int ctl_receipt_write(const struct ctl *c, const json_t *receipt, struct err *err);
int ctl_receipt_fetch(struct ctl *c, const char *sandbox, const char *execution, json_t **ret, struct err *err);

/* Follows an execution to its end: prints its output and keeps the offsets, so that a broken
 * connection is resumed without a gap. *ret_end is the ended execution; the caller frees it. */
struct ctl_stdin_feed;
struct ctl_follow {
    struct ctl *c;
    char *sandbox, *execution;
    bool is_muted;       /* do not print the output */
    bool forwards_stdin; /* send our standard input, from the event `started` on */
    struct ctl_stdin_feed *feed;
    uint64_t offset[2];
    struct ctl_show show;                  /* of displayed values and exceptions */
    unsigned events_shown, events_to_skip; /* a resumed stream sends them again from the first */
    json_t *ended_execution;
    struct err err;
};
bool ctl_follow_line(void *arg, const json_t *line); /* handles one event of a stream */
int ctl_follow(struct ctl_follow *f, struct err *err);
void ctl_decode_base64(struct buf *out, const char *base64); /* appends the decoded bytes */

/* Sends our standard input to an execution while the loop runs. An error interrupts the function
 * that waits in the client. */
struct ctl_stdin_feed *ctl_stdin_feed_new(struct ctl *c, const char *sandbox, const char *execution);
void ctl_stdin_feed_free(struct ctl_stdin_feed *f);
const struct err *ctl_stdin_feed_error(const struct ctl_stdin_feed *f); /* NULL: none */

/* Connects our terminal to an execution with a tty until it ends or the user detaches. Returns an
 * exit status, or -1 with *err. */
int ctl_terminal(struct ctl *c, const char *sandbox, const char *execution, struct err *err);
int ctl_require_terminal(const char *verb, const char *instead, struct err *err);

/* Prints a note on standard error if the program was ended; prints nothing if it ended itself. */
void ctl_note_end(const struct ctl *c, const json_t *execution);
int ctl_exit_status(const json_t *execution); /* same mapping as `cove run` */
