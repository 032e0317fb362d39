/* policy.h - a policy: all that can be decided about a sandbox before its program is known.
 *
 * A policy is complete: it begins as one of the built-in ones and a file changes some of its values. Each value knows
 * the line of the file it came from; 0 means that the built-in policy says so. A floor is what an operator sets below
 * which no policy goes. Files are read in src/policy/file; here is what they become. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "policy/level.h"
#include "policy/limits.h"
#include "policy/syscalls.h"

#define POLICY_NAME_MAX 64
#define POLICY_PATHS_MAX 9 /* binds and hidden paths together: a sandbox takes twelve mounts */
#define POLICY_ENV_MAX 256
#define POLICY_PATH_TEXT 4000
#define POLICY_TARGET_TEXT 250
#define POLICY_ENV_TEXT (32 * KIB)
#define POLICY_LINES_MAX 100000u

enum policy_workspace { POLICY_MEMORY, POLICY_READ_WRITE, POLICY_COPY_ON_WRITE, POLICY_WORKSPACES };

struct policy_path {
    char *src; /* on the host; NULL: the target is hidden */
    char *dst;
    uint32_t line;
};

struct policy_env {
    char *text; /* "NAME=value", or the bare NAME of a variable to pass on */
    bool is_pass_through;
    uint32_t line;
};

struct policy {
    char name[POLICY_NAME_MAX];
    char base[POLICY_NAME_MAX]; /* the built-in policy it began as */
    char *file;                 /* as the user wrote it; NULL: built in */
    enum level level;

    struct limits limits;
    uint32_t limit_line[LIMIT_COUNT];

    bool has_profile; /* otherwise the program decides */
    enum profile profile;
    uint32_t profile_line;
    uint32_t grants;
    uint32_t grant_line[GRANT_COUNT];
    uint64_t deny[FILTER_DENY_WORDS];
    uint32_t deny_line[64 * FILTER_DENY_WORDS];

    enum policy_workspace workspace;
    char *workspace_dir; /* NULL with POLICY_MEMORY */
    uint32_t workspace_line;
    struct policy_path paths[POLICY_PATHS_MAX];
    size_t npaths;
    struct policy_env env[POLICY_ENV_MAX];
    size_t nenv;
};

/* Where the operator's floor is, and the variable that names one more: it can only narrow further. */
#define OPERATOR_LIMITS_FILE "/etc/cove/floor.yaml"
#define OPERATOR_LIMITS_VARIABLE "COVE_FLOOR"

struct operator_limits {
    char *file; /* NULL: there is none */
    enum level level;
    uint64_t has_max; /* bit per limit that has a maximum */
    uint64_t max[LIMIT_COUNT];
    uint32_t forbidden_grants;        /* grants */
    uint64_t deny[FILTER_DENY_WORDS]; /* denied whatever the policy says */
    uint32_t allowed_workspaces;      /* bit per allowed enum policy_workspace; 0: all */
    bool requires_every_wall;         /* also those that only root can raise */
    uint64_t must_enforce;            /* bit per limit that the host must enforce whole */
};

/* The built-in policies: standard, high, debug. False when there is none of that name. */
bool policy_builtin(const char *name, struct policy *ret);
const char *const *policy_builtins(void);                /* names, NULL-terminated */
const char *policy_builtin_summary(const char *builtin); /* one line about it */
void policy_done(struct policy *p);
void operator_limits_done(struct operator_limits *f);

const char *policy_workspace_name(enum policy_workspace w);
bool policy_workspace_parse(const char *name, enum policy_workspace *ret);
bool policy_denies(const uint64_t deny[FILTER_DENY_WORDS], unsigned nr);
void policy_deny(uint64_t deny[FILTER_DENY_WORDS], unsigned nr);

/* A policy's name: letters, digits, '-', '_' and '.', less than POLICY_NAME_MAX of them. */
bool policy_name_valid(const char *s);
/* A variable's name: letters, digits and '_', not beginning with a digit. */
bool policy_env_name_valid(const char *s, size_t len);
/* An absolute path without "//", "." and ".." and control characters. */
bool policy_path_is_plain(const char *p);

/* Whether a value is beyond a maximum; "unlimited" is beyond all, and a set of processors is when it has more. */
bool operator_limits_exceeded(enum limit l, uint64_t value, uint64_t max);
/* Refuses a policy that is below the floor, by the name of the field. What the policy does not say itself is not held
 * against it: operator_limits_lower() brings that down. */
int operator_limits_check(const struct operator_limits *f, const struct policy *p, struct err *err);
/* Lowers every limit whose bit is not in `chosen` to the floor's maximum; returns the bits it lowered. */
uint64_t operator_limits_lower(const struct operator_limits *f, struct limits *l, uint64_t chosen);

/* The canonical form: the lines by which cove-policy hands a policy and a floor to cove. Versioned, in one order, and
 * strict: what canon_parse accepts is exactly what canon_write writes. docs/policies.md has the grammar. */
#define CANON_VERSION 1
#define CANON_MAX (1024 * KIB)
void canon_write(const struct policy *p, const struct operator_limits *f, struct buf *out);
/* On failure nothing is left to free. */
int canon_parse(const char *text, size_t len, struct policy *ret_policy, struct operator_limits *ret_floor,
                struct err *err);
