/* calc_steps.h - the reductions of an evaluation, as text: "1/3 + 1/6 = 1/2". */
#pragma once

#include "core/calc/calc_format.h"
#include "core/calc/calc_program.h"

struct calc_steps {
    char *items[CALC_STEPS_MAX];
    size_t n, omitted;
};

void calc_steps_clear(struct calc_steps *s);
/* Two calls around an operation: its operands, then its result. The text of the operands is kept
 * between them in `ret`; steps may be NULL. */
void calc_steps_begin(struct calc_steps *s, const struct calc_op *op, const struct calc_value *args, struct buf *ret);
void calc_steps_end(struct calc_steps *s, const struct buf *operation, const struct calc_value *result);
void calc_steps_add(struct calc_steps *s, const char *text);
