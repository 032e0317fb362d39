/* policy_rows.h - a policy as rows of key, value and source: what `cove policy show` prints and `cove policy diff`
 * compares.
 */
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

/* Complete: what the policy does not say itself is there with its default, as `cove run` would apply it under this
 * floor. Limits that follow from others are shown as they follow. */
void policy_rows_build(const struct policy *p, const struct operator_limits *f, struct policy_rows *ret);
void policy_rows_done(struct policy_rows *r);

void policy_rows_print(const struct policy *p, const struct policy_rows *r, struct buf *out);
/* The form of a policy file, complete, and "sources" beside it. */
void policy_rows_json(const struct policy *p, const struct operator_limits *f, const struct policy_rows *r,
                      struct buf *out);
/* "- key value" and "+ key value" for what differs, in the order of the keys; returns how many rows differ. */
size_t policy_rows_diff(const struct policy_rows *a, const struct policy_rows *b, struct buf *out);
