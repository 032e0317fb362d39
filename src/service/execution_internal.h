/* execution_internal.h - struct execution, and the functions on it that the files of src/service
 * share. Not for other directories. */
#pragma once

#include "service/end_journal.h"
#include "service/execution_state.h"
#include "service/failure_hint.h"
#include "service/output_dir.h"
#include "service/output_stream.h"
#include "service/sandbox_internal.h"

#include "sandbox/clocks.h"
#include "sandbox/receipt.h"

/* Shared by the executions of all sandboxes; the manager fills it. Borrowed pointers. */
struct executions {
    struct ev *ev;
    struct output_dir *output_dir;
    struct end_journal *end_journal;
    struct manager_stats *stats;
    struct fair_queue start_queue;
    struct host_modules *modules; /* for hints; owned */
    uint32_t max_per_sandbox;
    /* As in struct manager_settings. */
    void (*on_denials)(void *arg, const char *owner, const struct receipt *r);
    void (*on_refused_destinations)(void *arg, const char *owner, const struct receipt *r);
    void *on_denials_arg; /* of both */
    /* Ends that were acknowledged and must still be submitted to the store. */
    struct execution *pending_commits, **pending_commits_last;
    struct ev_defer flush_defer;
};

struct execution_watch {
    struct execution_watch *next;
    struct execution *execution; /* NULL after the end */
    execution_watch_fn *fn;
    void *arg;
};

struct execution_writer {
    struct execution_writer *next;
    struct execution *execution; /* NULL after the end */
    const struct execution_writer_ops *ops;
    void *arg;
};

/* The output files of an execution (output.c). */
struct stored_output {
    struct output_stream stream; /* kept: bytes in the files; lost: bytes that the disk refused */
    int fd[OUTPUT_CHANNELS];
    bool has_temp_name[OUTPUT_CHANNELS]; /* its file has the .new name until the row is inserted */
    uint64_t ring_bytes;                 /* terminal: size of the kept tail; 0: everything is kept */
    /* Size limit of the file of a terminal whose file system cannot punch holes; 0: unlimited. */
    uint64_t file_bytes_max;
    uint64_t discarded_bytes; /* terminal: bytes discarded from the beginning */
};

struct execution {
    struct execution *next;
    struct sandbox *sandbox;
    char id[ID_SIZE];
    enum execution_state state;
    enum { EXECUTION_ROW_NONE, EXECUTION_ROW_SUBMITTED, EXECUTION_ROW_COMMITTED } row; /* its insertion */
    struct exec_handle *exec;
    struct context *running_context;   /* the context whose queue it is in; NULL after that */
    struct execution *next_in_context; /* the next one in that queue */
    char context_id[ID_SIZE];          /* "": not of a context */
    bool awaits_input, is_only_execution;
    bool context_reset; /* it began in a language kernel that replaced a dead one; at the end as in the receipt */
    struct exec_clocks cpu_clock; /* of an execution in a context that has a CPU time limit */
    struct ev_timer cpu_timer;
    struct fair_queue_slot start_slot; /* slot for the start */
    struct files_job *files_job;       /* while its code file is written or removed */
    char *code;
    char language[16]; /* of the code; "": the sandbox's */
    size_t code_sent;
    bool code_in_file;
    char **argv, **env;
    char *cwd;
    char *input;
    size_t input_len, input_sent;
    bool input_open, input_closed; /* accepts writers; a writer sent the end of input */
    struct execution_writer *input_writers;
    struct exec_spec spec;
    uint32_t resume_stream; /* stream id from before a restart of the server; 0: not resumed */
    uint64_t created_ms, started_ms, ended_ms;
    uint64_t created_mono_ms; /* 0: unknown */
    uint64_t begun_ns;        /* in a context, by clock_mono_ns(); 0: begun by another process */
    char created_by[ID_SIZE];
    char request_id[RECEIPT_REQUEST_MAX + 1]; /* of the HTTP request; "": none */
    uint64_t cpu_base_ns;                     /* CPU counter of the sandbox when it began */
    uint64_t sandbox_paused_ms;               /* paused_total_ms of the sandbox when it began */
    bool background;
    struct stored_output output;
    struct failure failure;
    bool report_only_end; /* the caller needs no answer before the end */
    bool end_journaled;   /* its end is in the journal and was acknowledged */
    struct execution_watch *watches;
    struct ev_timer retry_timer, insert_timer;
    struct ev_defer notify_defer, cancel_defer;
    /* List of ends that were acknowledged ahead of their commit; the link is NULL outside of it. */
    struct execution *next_pending_commit, **pending_commit_link;

    /* the end */
    enum store_execution_state end_state;
    bool has_receipt;
    int exit_code, signal;
    enum ended_by ended_by;
    bool has_ended_by;
    char *receipt_json, *error_json;
    char *hint;          /* NULL: none */
    bool over_budget;    /* killed because a budget is used up */
    uint64_t end_cpu_us; /* CPU counter of the sandbox at the end, for usage; 0: unknown */

    struct store_request *insert_request, *end_request; /* pending */
    store_execution_fn *done;
    void *done_arg;
};

/* execution.c */
#define EXECUTIONS_UNCOMMITTED_MAX 1024u /* per sandbox */
/* Whether another execution may begin beside those that run. */
int sandbox_check_running_executions(const struct sandbox *sb, size_t running, struct err *err);
extern const struct exec_handle_ops execution_engine_ops;
struct execution *execution_alloc(const char *id);
void execution_link(struct execution *ex, struct sandbox *sb);
void execution_kill(struct execution *ex);
char **execution_copy_list(const char *const *list); /* NULL-terminated; free with spec_env_free() */
void execution_free(struct execution *ex);
void execution_insert_row(struct execution *ex);
void execution_insert_row_later(struct execution *ex); /* or with its end, if that comes first */
void execution_begin_running(struct execution *ex);    /* its program runs: also in its row, if it has one */

/* execution_stored.c */
char *execution_request_json(const struct execution *ex); /* as stored in the row */

/* execution_input.c */
void execution_input_writable(struct execution *ex); /* its standard input accepts more */
void execution_input_end(struct execution *ex);      /* no more input is accepted */

/* execution_end.c */
/* Adds the figures to the statistics and calls on_refused_destinations. */
void executions_count_receipt(struct executions *x, const char *owner, const struct receipt *r);
/* Adds the denials to the statistics and calls on_denials. */
void executions_count_denials(struct executions *x, const char *owner, const struct receipt *r);
void execution_unqueue_commit(struct execution *ex); /* removes it from pending_commits */
void execution_end(struct execution *ex, enum store_execution_state state, const struct receipt *r,
                   const struct err *why);

/* execution_watch.c */
struct execution *execution_find(const struct sandbox *sb, const char *id);
void execution_notify(struct execution *ex);                                        /* something changed */
void execution_notify_end(struct execution *ex, const struct store_execution *row); /* its end is committed */

/* output.c */
void output_init(struct execution *ex);
void output_close(struct execution *ex);
int output_open_existing(struct execution *ex); /* files of an earlier server; may be called twice */
void output_set_final_names(struct execution *ex, bool has_row);
