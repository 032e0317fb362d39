/* session.h - connects one program in a sandbox to the streams, the terminal and the signals of
 * this process. */
#pragma once

#include "client/cli/sink.h"
#include "client/cli/source.h"

#include "core/base/buf.h"
#include "sandbox/engine.h"
#include "sandbox/failure.h"
#include "sandbox/receipt.h"

struct session_spec {
    const struct exec_spec *exec;
    bool input;   /* send standard input */
    bool raw;     /* standard input is a terminal: switch it to raw mode while the program runs */
    bool capture; /* keep output in memory instead of writing it */
    bool quiet;
};

struct session {
    struct ev *ev;
    struct sandbox_handle *sandbox;
    struct exec_handle *exec;
    struct session_spec spec;
    struct sink out, err;
    struct source *in;
    struct buf captured[2]; /* captured standard output and standard error */
    struct failure failure_texts;
    bool is_terminal; /* standard error is part of standard output */
    bool running, ended, failed;
    struct err failure;            /* valid if failed */
    const struct receipt *receipt; /* valid if ended and not failed; owned by exec */
    int interrupts;
    uint64_t interrupted_at;
    struct ev_timer interrupt_timer;
    int output_errno; /* errno of a failed write to standard output; 0: none */
    void (*on_end)(void *arg);
    void *arg;
};

/* `on_end` is called once: when the program has ended and its output is delivered, or when it could
 * not be started (s->failed, s->failure). The spec's exec is borrowed for the call. */
int session_start(struct session *s, struct ev *ev, struct sandbox_handle *sandbox, const struct session_spec *spec,
                  void (*on_end)(void *arg), void *arg, struct err *err);
void session_done(struct session *s);

/* Handles the signals of this process in the loop: SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH,
 * SIGTSTP. A signal that the caller of cove ignores (nohup, a background job) stays ignored. */
int session_catch_signals(struct ev *ev, void (*fn)(void *arg, int signo), void *arg, struct err *err);
/* Handles one of these signals in a started session. */
void session_on_signal(struct session *s, int signo);

/* Adds the result of the session as members of an open object: outcome, exitCode, signal, endedBy,
 * stdout, stderr (or stdoutBase64, stderrBase64 when they are not UTF-8), truncated. failed: the
 * caller adds an error. */
void session_json(const struct session *s, bool failed, struct jsonw *w);
