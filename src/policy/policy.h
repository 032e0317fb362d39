/* policy.h - a policy: everything that is decided about a sandbox before its program is known.
 *
 * A policy is complete: it starts as a copy of a built-in policy, and a file changes some of its
 * values. Each value has the line of the file that set it; 0 means that the value is that of the
 * built-in policy. Operator limits (the "floor") are the operator's bounds that no policy may
 * exceed. src/policy/file reads the files into the structs defined here. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"
#include "policy/driver.h"
#include "policy/ip_address.h"
#include "policy/level.h"
#include "policy/limits.h"
#include "policy/network.h"
#include "policy/syscalls.h"

#define POLICY_NAME_MAX 64
#define POLICY_PATHS_MAX 9 /* binds and hidden paths together: a sandbox has at most twelve mounts */
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
    char *text; /* "NAME=value", or only the NAME of a variable to pass on */
    bool is_pass_through;
    uint32_t line;
};

struct policy {
    char name[POLICY_NAME_MAX];
    char base[POLICY_NAME_MAX]; /* the built-in policy that it extends */
    char *file;                 /* as the user wrote it; NULL: built-in */
    enum level level;
    enum driver_id driver;
    uint32_t driver_line;          /* 0: the policy does not choose a driver */
    struct network_policy network; /* owns its text */
    uint32_t network_line;         /* 0: the policy says nothing about the network */

    struct limits limits;
    uint32_t limit_line[LIMIT_COUNT];

    bool has_profile; /* false: the profile follows from the program */
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

/* The file with the operator limits, and the variable that names a second such file, which can only
 * narrow further. */
#define OPERATOR_LIMITS_FILE "/etc/cove/floor.yaml"
#define OPERATOR_LIMITS_VARIABLE "COVE_FLOOR"
#define OPERATOR_OPEN_RANGES_MAX 64

struct operator_limits {
    char *file; /* NULL: there are no operator limits */
    enum level level;
    uint64_t has_max; /* one bit per limit that has a maximum */
    uint64_t max[LIMIT_COUNT];
    uint32_t forbidden_grants;        /* one bit per enum grant */
    uint32_t forbidden_drivers;       /* one bit per enum driver_id */
    uint64_t deny[FILTER_DENY_WORDS]; /* denied, whatever the policy says */
    uint32_t allowed_workspaces;      /* one bit per allowed enum policy_workspace; 0: all */
    bool requires_every_wall;         /* including the walls that only root can raise */
    uint64_t must_enforce;            /* one bit per limit that the host must fully enforce */
    bool forbids_network;             /* no sandbox may have one */
    char *network_denials;            /* canonical `deny` rules that stand before all others; NULL: none */
    /* Addresses that are taken out of the closed ranges; owned. From the floor only for `cove run`;
     * a server has the setting egress.openRanges. */
    struct ip_prefix *open_ranges;
    size_t nopen_ranges;
};

/* The built-in policies: standard, high, debug. False if none has this name. */
bool policy_builtin(const char *name, struct policy *ret);
const char *const *policy_builtins(void);                /* names, NULL-terminated */
const char *policy_builtin_summary(const char *builtin); /* a summary of one line */
void policy_done(struct policy *p);
void operator_limits_done(struct operator_limits *f);

const char *policy_workspace_name(enum policy_workspace w);
bool policy_workspace_parse(const char *name, enum policy_workspace *ret);
bool policy_denies(const uint64_t deny[FILTER_DENY_WORDS], unsigned nr);
void policy_deny(uint64_t deny[FILTER_DENY_WORDS], unsigned nr);

/* A valid policy name: letters, digits, '-', '_' and '.', shorter than POLICY_NAME_MAX. */
bool policy_name_valid(const char *s);
/* A valid variable name: letters, digits and '_', not starting with a digit. */
bool policy_env_name_valid(const char *s, size_t len);
/* An absolute path without "//", "." and ".." components and without control characters. */
bool policy_path_is_plain(const char *p);

/* Whether a value exceeds a maximum. "unlimited" exceeds every maximum; a set of processors exceeds
 * one if it has more of them. */
bool operator_limits_exceeded(enum limit l, uint64_t value, uint64_t max);
/* Refuses a policy that exceeds the operator limits, and names the field. Values that the policy
 * does not set itself are not checked: operator_limits_lower() lowers them. */
int operator_limits_check(const struct operator_limits *f, const struct policy *p, struct err *err);
/* Lowers every limit whose bit is not in `chosen` to the operator's maximum; returns the bits of
 * the lowered limits. */
uint64_t operator_limits_lower(const struct operator_limits *f, struct limits *l, uint64_t chosen);

/* The canonical form: the lines in which cove-policy passes a policy and the operator limits to
 * cove. Versioned, in a fixed order, and strict: canon_parse accepts exactly what canon_write
 * writes. docs/policies.md has the grammar. */
#define CANON_VERSION 3
#define CANON_MAX (1024 * KIB)
void canon_write(const struct policy *p, const struct operator_limits *f, struct buf *out);
/* On failure there is nothing to free. */
int canon_parse(const char *text, size_t len, struct policy *ret_policy, struct operator_limits *ret_floor,
                struct err *err);
