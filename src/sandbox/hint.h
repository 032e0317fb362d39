/* hint.h - a hint for a failed execution: what failed, what is available instead, what to change.
 *
 * Two or three sentences for a person or a language model. Pure: facts in, text out. A hint follows
 * from the facts; without a matching rule there is none. Exceptions, tracebacks and output are
 * written by the program and not trusted: a hint quotes at most a name of HINT_TOKEN_MAX - 1
 * characters from them, of letters, digits and "._/@+-". The rules are in hint_causes.def, and what
 * they know about modules and commands in hint_modules.def and hint_commands.def. */
#pragma once

#include "sandbox/limit_hits.h"
#include "sandbox/python_modules.h"
#include "sandbox/receipt.h"

#define HINT_MAX 640          /* with its NUL */
#define HINT_TOKEN_MAX 49     /* with its NUL */
#define HINT_OUTPUT_MAX 4096u /* bytes of the end of the output that are read */

/* Where the code ran, which decides what can be changed. */
enum hint_place {
    HINT_RUN,     /* `cove run`: the person has the host */
    HINT_EXECUTE, /* a fresh sandbox of a server, for this execution only */
    HINT_PROCESS, /* a process of its own in a sandbox of a server */
    HINT_CONTEXT, /* a context of a sandbox, with the variables of earlier executions */
};

/* Strings may be NULL: unknown. */
struct hint_facts {
    enum hint_place place;
    const char *language; /* of the code: "python"; NULL: a command */
    enum ended_by ended_by;
    int exit_code;                       /* -1: it did not exit */
    int signal;                          /* 0: no signal */
    bool context_reset;                  /* the variables of the context are lost */
    bool has_network;                    /* false: only loopback */
    const struct receipt_egress *egress; /* has_network: what was reached and refused */
    const char *code;                    /* the code or the shell line; its beginning suffices */
    const char *exception_name;          /* as the language kernel reports it */
    const char *exception_value;
    const char *traceback; /* lines with newlines */
    const char *output;    /* the end of standard error; not terminated */
    size_t output_len;
    const struct limits *limits;
    uint64_t oom_kills; /* processes that the memory limit ended */
    const struct limit_hit *limit_hits;
    size_t nlimit_hits;
    const struct denial_count *denials;
    size_t ndenials;
    const struct python_modules *modules; /* NULL: unknown */
    /* Whether the sandbox has this program, by its file name; NULL: unknown. */
    bool (*has_program)(const char *name);
    /* The request field or flag (without dashes) that sets this limit; NULL: only a policy. */
    const char *(*setting)(enum limit l);
};

/* Fills the facts that a receipt holds; they borrow from *r and hits. */
void hint_facts_from_receipt(struct hint_facts *f, const struct receipt *r, struct limit_hit hits[LIMIT_COUNT]);
/* Writes UTF-8 without control characters. False: no hint, because the execution succeeded or no
 * rule matches its failure. */
bool hint_write(const struct hint_facts *f, char ret[HINT_MAX]);
/* The hint only says that the program failed by itself: nothing that a person cannot see. */
bool hint_is_general(const char *hint);
/* Whether language_dirs have the program; for has_program. */
bool hint_host_has_program(const char *name);
