/* run_options.h - the options of `cove run`: every flag parsed, checked and completed with
 * defaults.
 *
 * Building the options accesses no files and no system state except the environment variables
 * of --env, so a list of arguments is enough to test it. Strings point into argv or into memory
 * of the options. */
#pragma once

#include "client/cli/args.h"

#include "core/base/err.h"
#include "policy/level.h"
#include "policy/limits.h"
#include "policy/policy.h"
#include "sandbox/engine.h"

#define RUN_OPTIONS_BINDS_MAX \
    9 /* a sandbox has at most 12 mounts; three are reserved for script, skills and workspace */

#define RUN_OPTIONS_LANGUAGE_DEFAULT "python" /* of code without --runtime */

struct run_options_bind {
    char *src; /* NULL: hide dst, if it exists */
    char *dst;
    uint32_t line; /* line in the policy file; 0: set by a flag */
};

/* The source of a value. */
enum run_options_source {
    RUN_OPTION_FROM_LEVEL,
    RUN_OPTION_FROM_POLICY,
    RUN_OPTION_FROM_FLAG,
    RUN_OPTION_FROM_OPERATOR_LIMITS, /* a default, lowered to the operator limits */
    RUN_OPTION_FROM_OTHER_LIMITS,    /* a default, adjusted to fit other limits */
};

struct run_options {
    const struct policy *policy;                   /* borrowed; NULL: standard */
    const struct operator_limits *operator_limits; /* borrowed; NULL: none */
    enum level level;
    enum driver_id driver;
    enum run_options_source driver_source; /* a flag, the policy, the operator limits or the level */
    struct network_policy network;         /* owns its text */
    bool net_none, net_egress;             /* the last --net */
    bool network_flag;                     /* given by a flag, not only by the policy */
    const char *network_flag_name;         /* the first such flag, as "--allow" */
    struct sandbox_secret *secrets;        /* values for the secret rules of `network`; wiped at the end */
    size_t nsecrets;
    struct buf network_rules; /* of the flags, in their order; part of `network` when the options are complete */
    uint32_t grants;
    uint64_t deny[FILTER_DENY_WORDS];
    uint8_t source[LIMIT_COUNT]; /* enum run_options_source */
    struct limits limits;
    uint64_t chosen;    /* bit per limit: given by the user, so never adjusted */
    bool output_capped; /* false: output is streamed without a limit */

    const char *runtime; /* NULL: derived from the program or script */
    const char *code;    /* NULL: none */
    char **words;        /* program or script and its arguments */
    int nwords;
    bool after_dashes; /* "--" preceded the words: the first is a program, never a script */
    char *cwd;         /* absolute */
    char **env;        /* "NAME=value", NULL-terminated */
    size_t nenv;
    size_t nenv_policy; /* the first nenv_policy variables come from the policy */

    char *workspace;     /* host directory; NULL: a new one in memory */
    bool workspace_flag; /* given by --workspace, not by the policy */
    bool cow;
    const char *skills;
    struct run_options_bind binds[RUN_OPTIONS_BINDS_MAX];
    size_t nbinds;

    bool tty, interactive, json, quiet, keep, dry_run;
    bool receipt;
    const char *receipt_file; /* NULL with receipt: standard error */
    const char *state_dir;    /* NULL: the default */
};

/* Flags override the policy, which overrides the defaults of the level; the operator limits in
 * `floor` apply to all. policy and floor may be NULL and must outlive the options. */
int run_options_build(const struct args *a, const struct policy *policy, const struct operator_limits *floor,
                      struct run_options *ret, struct err *err);
/* "--memory", "policy.yaml:12", "standard", ... Returns buf. */
#define RUN_OPTIONS_SOURCE_TEXT 160
char *run_options_source_text(const struct run_options *r, enum limit l, char buf[RUN_OPTIONS_SOURCE_TEXT]);
void run_options_done(struct run_options *r);

/* Makes NAME=value from NAME[=VALUE]; a bare name takes the value of this process. The
 * caller frees *ret. */
int run_options_parse_env(const char *text, char **ret, struct err *err);
/* Makes an absolute path from a path that may be relative to /workspace. The caller frees *ret. */
int run_options_parse_cwd(const char *text, char **ret, struct err *err);
