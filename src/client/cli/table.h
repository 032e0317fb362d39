/* table.h - the verbs of `cove` and their options, as data. The parser, the help, the manual pages,
 * the completion scripts and the documentation all read these tables, so they cannot disagree. */
#pragma once

#include "core/base/base.h"
#include "policy/limits.h"

enum opt_id {
    OPT_NONE,
    OPT_RUNTIME,
    OPT_CODE,
    OPT_CWD,
    OPT_ENV,
    OPT_WORKSPACE,
    OPT_BIND_RO,
    OPT_VOLUME,
    OPT_SKILLS,
    OPT_POLICY,
    OPT_LEVEL,
    OPT_DRIVER,
    OPT_NET,
    OPT_ALLOW,
    OPT_DENY,
    OPT_METHOD,
    OPT_SECRET,
    OPT_TTY,
    OPT_STDIN,
    OPT_JSON,
    OPT_RECEIPT,
    OPT_AFTER,
    OPT_KIND,
    OPT_FROM,
    OPT_TO,
    OPT_BY,
    OPT_TENANT,
    OPT_OF_USER,
    OPT_CSV,
    OPT_ONCE,
    OPT_INTERVAL,
    OPT_SORT,
    OPT_QUIET,
    OPT_DRY_RUN,
    OPT_KEEP,
    OPT_STATE_DIR,
    OPT_HELP,
    OPT_ALL,
    OPT_YES,
    OPT_LOCAL,
    OPT_URL,
    OPT_CACERT,
    OPT_TEMPLATE,
    OPT_SEARCH,
    OPT_METADATA,
    OPT_IDLE_ACTION,
    OPT_PIN,
    OPT_STATE,
    OPT_OUTCOME,
    OPT_NAME,
    OPT_BACKGROUND,
    OPT_FOLLOW,
    OPT_TAR,
    OPT_SPEC,
    OPT_PRELOAD,
    OPT_TOOL_ARG,
    OPT_SCOPE,
    OPT_EXPIRES,
    OPT_TTL,
    OPT_PUT,
    OPT_DEVICE,
    OPT_RECURSIVE,
    OPT_CONFIG,
    OPT_STORE_URL,
    OPT_PRINT_CONFIG,
    OPT_KEY_FILE,
    OPT_HEAD,
    OPT_SINCE,
    OPT_UNTIL,
    OPT_ACTION,
    OPT_LINES,
    OPT_MAX_SANDBOXES,
    OPT_MAX_CPUS,
    OPT_MAX_MEMORY,
    OPT_MAX_DISK,
    OPT_MAX_EXECUTIONS,
    OPT_PER,
    OPT_BUDGET_CPU,
    OPT_BUDGET_ALIVE,
    OPT_SUSPEND,
    OPT_RESUME,
    OPT_ROLE,
    OPT_DISABLE,
    OPT_ENABLE,
    OPT_RENAME,
    OPT_ALLOW_SCOPE,
    OPT_SAVE,
    OPT_MIN,
    OPT_MAX,
    OPT_MAX_AGE,
    OPT_HIT_RATE,
    OPT_SCALE_DOWN,
    OPT_AUTOSCALE,
    OPT_FIXED,
    OPT_RECYCLE,
    OPT_NO_RECYCLE,
    OPT_FILE,
    OPT_OUTPUT,
    OPT_CACHE,
    OPT_TIER,
    OPT_ISOLATED,
    OPT_DIGITS,
    OPT_STEPS,
    OPT_IN_SANDBOX,
    OPT_SERVER_URL,
    OPT_HEADER,
    OPT_SERVER,
    OPT_ARG,
    OPT_CALL_TIMEOUT,
    OPT_ELICIT,
    OPT_UNSANDBOXED,
    OPT_SECRET_HOST,
    OPT_LIMIT, /* + enum limit */
};

enum opt_group {
    GROUP_PROGRAM,
    GROUP_FILES,
    GROUP_WALLS,
    GROUP_LIMITS,
    GROUP_STREAMS,
    GROUP_RESULT,
    GROUP_LIFE,
    GROUP_COUNT
};

/* Values that a shell offers as completion of the argument. */
enum opt_complete {
    COMPLETE_NONE,
    COMPLETE_FILE,
    COMPLETE_DIR,
    COMPLETE_RUNTIME,
    COMPLETE_POLICY,
    COMPLETE_LEVEL,
    COMPLETE_DRIVER,
    COMPLETE_NET,
    COMPLETE_TIER,
    COMPLETE_ENV,
    COMPLETE_NAME, /* a name that the server knows */
};

enum verb_id {
    VERB_RUN,
    VERB_SHELL,
    VERB_LS,
    VERB_RM,
    VERB_SANDBOX,
    VERB_EXEC,
    VERB_EXECUTE,
    VERB_VALIDATE,
    VERB_CONTEXT,
    VERB_ATTACH,
    VERB_CP,
    VERB_FILES,
    VERB_TOOL,
    VERB_TEMPLATE,
    VERB_SCRIPT,
    VERB_SECRET,
    VERB_LOGS,
    VERB_WATCH,
    VERB_EVENTS,
    VERB_MCP,
    VERB_AUDIT,
    VERB_USAGE,
    VERB_BUDGET,
    VERB_TOP,
    VERB_PS,
    VERB_KEY,
    VERB_POOL,
    VERB_TENANT,
    VERB_USER,
    VERB_ROLE,
    VERB_TOKEN,
    VERB_LOGIN,
    VERB_LOGOUT,
    VERB_WHOAMI,
    VERB_GC,
    VERB_BACKUP,
    VERB_RESTORE,
    VERB_POLICY,
    VERB_CALC,
    VERB_SERVE,
    VERB_DOCTOR,
    VERB_RUNTIMES,
    VERB_EXPLAIN,
    VERB_ERRORS,
    VERB_COMPLETION,
    VERB_HELP,
    VERB_VERSION,
};

struct cli_option {
    enum verb_id verb;
    int id;           /* enum opt_id, or OPT_LIMIT + enum limit */
    const char *name; /* without dashes */
    char letter;      /* one-letter form; 0: none */
    const char *arg;  /* NULL: no argument; "[...]": optional, after '=' only */
    const char *dflt; /* default as text; NULL: none, or a limit, whose default is in limits.def */
    enum opt_group group;
    enum opt_complete complete;
    const char *help;
};

struct cli_example {
    const char *command;
    const char *description;
};

struct cli_verb {
    enum verb_id id;
    const char *name;
    const char *brief;                  /* one line, for lists */
    const char *const *synopsis;        /* without "cove"; NULL-terminated */
    const char *const *text;            /* paragraphs; NULL-terminated */
    const struct cli_example *examples; /* ends with a NULL command */
    bool exit_codes;                    /* exit statuses are those of `cove run` */
    const char *program;                /* program next to cove-runtime that implements the verb; NULL: cove */
    const char *const *words;           /* subcommands, one of which is required (cove sandbox create); NULL: none */
    bool words_are_optional;            /* without a subcommand the verb has a meaning of its own */
};

const struct cli_verb *cli_verbs(size_t *count);
const struct cli_verb *cli_verb_find(const char *name); /* NULL: not found */

/* Iterates over the options of a verb: pass NULL to start; returns NULL at the end. */
const struct cli_option *cli_option_next(const struct cli_verb *v, const struct cli_option *prev);
/* The same, ordered by group, as help prints them. */
const struct cli_option *cli_option_shown(const struct cli_verb *v, const struct cli_option *prev);
const struct cli_option *cli_option_find(const struct cli_verb *v, const char *name, size_t len);
const struct cli_option *cli_option_letter(const struct cli_verb *v, char letter);

const char *cli_group_title(enum opt_group g);
bool cli_arg_optional(const struct cli_option *o);
/* The default as printed in help, or NULL. */
const char *cli_option_default(const struct cli_option *o, char buf[LIMIT_TEXT]);

/* Exit statuses of run, exec and shell, in the order of the help; the last row is NULL. */
struct cli_exit {
    const char *code;
    const char *means;
};
const struct cli_exit *cli_exits(void);

/* Values of --level, --net, --policy and --runtime for completion; NULL-terminated. */
const char *const *cli_completion_values(enum opt_complete c);
