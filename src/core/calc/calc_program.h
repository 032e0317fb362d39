/* calc_program.h - a parsed formula, in postfix order, so that its evaluation needs no recursion
 * and can be repeated with a higher precision. */
#pragma once

#include "core/calc/calc_function.h"

enum calc_opcode {
    CALC_OP_LITERAL,
    CALC_OP_CONSTANT,
    CALC_OP_NEGATE,
    CALC_OP_PERCENT,
    CALC_OP_DEGREES,
    CALC_OP_FACTORIAL,
    CALC_OP_ADD,
    CALC_OP_SUBTRACT,
    CALC_OP_MULTIPLY,
    CALC_OP_DIVIDE,
    CALC_OP_FLOOR_DIVIDE,
    CALC_OP_MODULO,
    CALC_OP_POWER,
    CALC_OP_ADD_PERCENT,      /* a + b% */
    CALC_OP_SUBTRACT_PERCENT, /* a - b% */
    CALC_OP_CALL,
    CALC_OP_LESS,
    CALC_OP_LESS_EQUAL,
    CALC_OP_EQUAL,
    CALC_OP_NOT_EQUAL,
    CALC_OP_GREATER_EQUAL,
    CALC_OP_GREATER,
};

struct calc_op {
    enum calc_opcode code;
    size_t position, length; /* bytes in the text, for messages; of a literal, its text */
    const struct calc_function *function;
    size_t arguments; /* of a call */
};

struct calc_program {
    const char *text; /* borrowed */
    struct calc_op *ops;
    size_t n;
    size_t depth; /* values on the stack, at most */
    enum calc_type type;
};

/* ERR_CALC_SYNTAX, ERR_CALC_LIMIT. The text, of at most CALC_INPUT_MAX bytes, must be UTF-8 and
 * outlive the program. */
int calc_program_parse(const char *text, struct calc_program *ret, struct err *err);
void calc_program_done(struct calc_program *p);
/* Evaluates; v is initialized. steps: NULL, or where each reduction is described. */
struct calc_steps;
int calc_program_run(const struct calc_program *p, struct calc_run *r, struct calc_steps *steps, struct calc_value *v);
