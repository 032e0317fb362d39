/* execute_tier.h - the field "tier" of POST /v1/execute: which machinery answers.
 *
 * `full` is the request as it is without a tier. `simple` checks Python code and runs it in the
 * template snippet. `auto` tries the calculator, then `simple`. */
#pragma once

#include "server/api/api_internal.h"
#include "service/execute/executor.h"

#define TIER_CODE_MAX (64 * KIB)   /* bytes of code that is checked */
#define TIER_TIMEOUT_MAX_MS 10000  /* of code in the template snippet */
extern const char tier_template[]; /* of the tier simple */
extern const char tier_data_template[];

/* Reads "tier"; *ret is TIER_NONE without it. */
int execute_tier_read(const json_t *body, enum code_tier *ret, struct err *err);
/* Refuses fields that the tier does not have, and completes the request: check, template, cache.
 * The other fields of r are set. Tiers full and none change nothing. */
int execute_tier_apply(const json_t *body, enum code_tier tier, struct run_request *r, const char **template,
                       struct err *err);
/* The calculator's answer to code, as a complete result. False: it is nothing to calculate. */
bool execute_tier_calculate(const char *code, struct buf *ret);
/* Whether the calculator can answer the code. */
bool execute_tier_is_arithmetic(const char *code);
/* The template that has NumPy, pandas and matplotlib. */
bool execute_tier_has_data(const char *template);

/* For answers: TIER_NONE if the check refused the code. */
void execute_tier_count(struct api *api, enum code_tier tier);
const char *execute_tier_name(enum code_tier answered_by);
