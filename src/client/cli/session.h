/* session.h - one program in a sandbox, connected to the streams, the terminal and the signals of
 * this process. */
#pragma once

#include "client/cli/sink.h"
#include "client/cli/source.h"

#include "core/base/buf.h"
#include "sandbox/engine.h"
#include "sandbox/receipt.h"

struct session_spec {
    const struct exec_spec *exec;
    bool input;   /* pass on standard input */
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
    bool running, ended, failed;
    struct err failure;            /* when failed */
    const struct receipt *receipt; /* when ended and not failed; belongs to exec */
    int interrupts;
    uint64_t interrupted_at;
    struct ev_timer interrupt_timer;
    int output_errno; /* errno of standard output, when it could not take the output */
    void (*on_end)(void *arg);
    void *arg;
};

/* `on_end` is called once: the program has ended and its output is delivered, or it could not be
 * started (failed, why). The spec's exec is borrowed for the call. */
int session_start(struct session *s, struct ev *ev, struct sandbox_handle *box, const struct session_spec *spec,
                  void (*on_end)(void *arg), void *arg, struct err *err);
void session_done(struct session *s);

/* Reads the signals of this process with the loop: SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH,
 * SIGTSTP. What the caller of cove ignores (nohup, a background job) stays ignored. */
int session_catch_signals(struct ev *ev, void (*fn)(void *arg, int signo), void *arg, struct err *err);
/* What one of them means to a session that was started. */
void session_on_signal(struct session *s, int signo);

/* Adds what the session has to say as members of an open object: stdout, stderr (or stdoutBase64,
 * stderrBase64 when they are not UTF-8), exitCode, signal, endedBy, truncated. */
void session_json(const struct session *s, struct jsonw *w);
