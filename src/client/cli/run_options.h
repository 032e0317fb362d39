/* run_options.h - what a person asked `cove run` for: every flag read, checked and completed with
 * defaults.
 *
 * Building a request touches neither files nor the system beyond the environment variables that
 * --env names, so everything about it can be tested with a list of words. Strings point into argv
 * or into memory of the request. */
#pragma once

#include "client/cli/args.h"

#include "core/base/err.h"
#include "policy/level.h"
#include "policy/limits.h"
#include "policy/policy.h"

#define RUN_OPTIONS_BINDS_MAX 9 /* a sandbox takes twelve mounts: the rest is for script, skills and workspace */

struct run_options_bind {
    char *src; /* NULL: hidden, if it is there at all */
    char *dst;
    uint32_t line; /* of the policy file; 0: a flag */
};

/* Who decided a value. */
enum run_options_source {
    RUN_OPTION_FROM_LEVEL,
    RUN_OPTION_FROM_POLICY,
    RUN_OPTION_FROM_FLAG,
    RUN_OPTION_FROM_OPERATOR_LIMITS, /* nobody chose it, and the operator's floor lowered it */
    RUN_OPTION_FROM_OTHER_LIMITS,    /* nobody chose it, and it moved to fit what was chosen */
};

struct run_options {
    const struct policy *policy;                   /* borrowed; NULL: standard */
    const struct operator_limits *operator_limits; /* borrowed; NULL: none */
    enum level level;
    uint32_t grants;
    uint64_t deny[FILTER_DENY_WORDS];
    uint8_t source[LIMIT_COUNT]; /* enum run_options_source */
    struct limits limits;
    uint64_t chosen;    /* bit per limit: said by the user, so never adjusted */
    bool output_capped; /* otherwise output streams without end and is not counted against a limit */

    const char *runtime; /* NULL: the program or script decides */
    const char *code;    /* NULL: none */
    char **words;        /* program or script and its arguments */
    int nwords;
    bool after_dashes; /* "--" stood before the words: the first one is a program, never a script */
    char *cwd;         /* absolute */
    char **env;        /* "NAME=value", NULL-terminated */
    size_t nenv;
    size_t nenv_policy; /* the first so many are the policy's */

    char *workspace;     /* NULL: a fresh one in memory */
    bool workspace_flag; /* said by --workspace, not by the policy */
    bool cow;
    const char *skills;
    struct run_options_bind binds[RUN_OPTIONS_BINDS_MAX];
    size_t nbinds;

    bool tty, interactive, json, quiet, keep, dry_run;
    bool receipt;
    const char *receipt_file; /* NULL with receipt: standard error */
    const char *state_dir;    /* NULL: the default */
};

/* Flags over policy over the level's defaults; the floor holds for all of them. policy and floor
 * may be NULL and must outlive the request. */
int run_options_build(const struct args *a, const struct policy *policy, const struct operator_limits *floor,
                      struct run_options *ret, struct err *err);
/* "--memory", "policy.yaml:12", "standard", ... Returns buf. */
#define RUN_OPTIONS_SOURCE_TEXT 160
char *run_options_source_text(const struct run_options *r, enum limit l, char buf[RUN_OPTIONS_SOURCE_TEXT]);
void run_options_done(struct run_options *r);

/* NAME=value from NAME[=VALUE]; a bare name takes the value of this process. The caller frees. */
int run_options_parse_env(const char *text, char **ret, struct err *err);
/* An absolute path from one that may be relative to /workspace. The caller frees. */
int run_options_parse_cwd(const char *text, char **ret, struct err *err);
