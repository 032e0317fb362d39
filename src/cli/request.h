/* request.h - what a person asked `cove run` for: every flag read, checked and completed with defaults.
 *
 * Building a request touches neither files nor the system beyond the environment variables that --env names, so
 * everything about it can be tested with a list of words. Strings point into argv or into memory of the request. */
#pragma once

#include "cli/args.h"

#include "base/err.h"
#include "policy/level.h"
#include "policy/limits.h"

#define REQUEST_BINDS_MAX 9 /* a sandbox takes twelve mounts: the rest is for script, skills and workspace */

struct request_bind {
    char *src;
    char *dst;
};

struct request {
    enum level level;
    struct limits limits;
    uint64_t chosen;    /* bit per limit: said by the user, so never adjusted */
    bool output_capped; /* otherwise output streams without end and is not counted against a limit */

    const char *runtime; /* NULL: the program or script decides */
    const char *code;    /* NULL: none */
    char **words;        /* program or script and its arguments */
    int nwords;
    bool dashes; /* "--" stood before the words: the first one is a program, never a script */
    char *cwd;   /* absolute */
    char **env;  /* "NAME=value", NULL-terminated */
    size_t nenv;

    char *workspace; /* NULL: a fresh one in memory */
    bool cow;
    const char *skills;
    struct request_bind binds[REQUEST_BINDS_MAX];
    size_t nbinds;

    bool tty, interactive, json, quiet, keep, dry_run;
    bool receipt;
    const char *receipt_file; /* NULL with receipt: standard error */
    const char *state_dir;    /* NULL: the default */
};

int request_build(const struct args *a, struct request *ret, struct err *err);
void request_done(struct request *r);

/* NAME=value from NAME[=VALUE]; a bare name takes the value of this process. The caller frees. */
int request_env(const char *text, char **ret, struct err *err);
/* An absolute path from one that may be relative to /workspace. The caller frees. */
int request_cwd(const char *text, char **ret, struct err *err);
