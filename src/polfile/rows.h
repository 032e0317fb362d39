/* rows.h - a policy as rows of key, value and source: what `cove policy show` prints and `cove policy diff` compares.
 */
#pragma once

#include "base/buf.h"
#include "base/jsonw.h"
#include "policy/policy.h"

struct row {
    char *key; /* as a path in the file: "limits.memoryBytes" */
    char *value;
    char *source; /* "policy.yaml:12", "standard", "/etc/cove/floor.yaml" */
};

struct rows {
    struct row *list;
    size_t n;
};

/* Complete: what the policy does not say itself is there with its default, as `cove run` would apply it under this
 * floor. Limits that follow from others are shown as they follow. */
void rows_of(const struct policy *p, const struct floor *f, struct rows *ret);
void rows_done(struct rows *r);

void rows_print(const struct policy *p, const struct rows *r, struct buf *out);
/* The form of a policy file, complete, and "sources" beside it. */
void rows_json(const struct policy *p, const struct floor *f, const struct rows *r, struct buf *out);
/* "- key value" and "+ key value" for what differs, in the order of the keys; returns how many rows differ. */
size_t rows_diff(const struct rows *a, const struct rows *b, struct buf *out);
