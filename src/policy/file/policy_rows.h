/* policy_rows.h - a policy as rows of key, value and source, for `cove policy show` and `cove
 * policy diff`. */
#pragma once

#include "core/base/buf.h"
#include "core/base/jsonw.h"
#include "policy/policy.h"

struct policy_row {
    char *key; /* as a path in the file: "limits.memoryBytes" */
    char *value;
    char *source; /* "policy.yaml:12", "standard", "/etc/cove/floor.yaml" */
};

struct policy_rows {
    struct policy_row *list;
    size_t n;
};

/* Builds the complete list: values that the policy does not set have their defaults, as `cove run`
 * would apply them under these operator limits. Limits that follow from others have their adjusted
 * values. */
void policy_rows_build(const struct policy *p, const struct operator_limits *f, struct policy_rows *ret);
void policy_rows_done(struct policy_rows *r);

void policy_rows_print(const struct policy *p, const struct policy_rows *r, struct buf *out);
/* Writes a complete policy file as JSON, with an additional "sources". */
void policy_rows_json(const struct policy *p, const struct operator_limits *f, const struct policy_rows *r,
                      struct buf *out);
/* Writes "- key value" and "+ key value" for rows that differ, ordered by key; returns the number
 * of rows that differ. */
size_t policy_rows_diff(const struct policy_rows *a, const struct policy_rows *b, struct buf *out);
