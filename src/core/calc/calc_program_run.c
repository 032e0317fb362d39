/* Evaluates a program on a stack of values. */
#include "core/calc/calc_program.h"

#include "core/base/mem.h"
#include "core/calc/calc_angle.h"
#include "core/calc/calc_steps.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>

/* --- literals --- */

/* A decimal: its digits as an integer, times a power of ten. */
static int calc_literal_decimal(struct calc_run *r, const char *text, size_t len, mpq_ptr q)
{
    char digits[CALC_INPUT_MAX + 1];
    long places = 0, exponent = 0;
    size_t n = 0, i = 0;
    bool fraction = false;

    for (; i < len && text[i] != 'e' && text[i] != 'E'; i++) {
        if (isdigit((unsigned char)text[i])) {
            digits[n++] = text[i];
            places += fraction;
        }
        fraction |= text[i] == '.';
    }
    digits[n] = '\0';
    if (i < len) {
        bool negative = text[i + 1] == '-';

        for (i++; i < len; i++)
            if (isdigit((unsigned char)text[i]) && exponent <= (long)CALC_VALUE_DIGITS_MAX)
                exponent = exponent * 10 + (text[i] - '0');
        exponent = negative ? -exponent : exponent;
    }
    exponent -= places;
    if (mpz_set_str(mpq_numref(q), digits, 10) < 0)
        return calc_fail(r, ERR_BUG, "a number without digits");
    if (mpz_sgn(mpq_numref(q)) == 0)
        return 0;
    if (exponent > (long)CALC_VALUE_DIGITS_MAX || exponent < -(long)CALC_VALUE_DIGITS_MAX)
        return calc_fail_size(r);
    unsigned long power = (unsigned long)(exponent < 0 ? -exponent : exponent);
    uint64_t bits = 4 * (uint64_t)n + 4 * (uint64_t)power;
    if (calc_spend(r, 3 * calc_work_multiply(bits) + (exponent < 0 ? calc_work_reduce(4 * (uint64_t)n, bits) : 0)) < 0)
        return -1;
    mpz_t scale;
    mpz_init(scale);
    mpz_ui_pow_ui(scale, 10, power);
    if (exponent > 0)
        mpz_mul(mpq_numref(q), mpq_numref(q), scale);
    else
        mpz_set(mpq_denref(q), scale);
    mpz_clear(scale);
    if (exponent < 0)
        mpq_canonicalize(q);
    return 0;
}

static int calc_literal_read(struct calc_run *r, const char *text, size_t len, struct calc_value *v)
{
    static const char *const exponents[] = { "\u00b2", "\u00b3" };
    char digits[CALC_INPUT_MAX + 1];

    for (size_t i = 0; i < ARRAY_LEN(exponents); i++)
        if (len == strlen(exponents[i]) && memcmp(text, exponents[i], len) == 0) {
            mpq_set_ui(v->q, 2 + i, 1);
            return 0;
        }
    if (len > 2 && text[0] == '0' && isalpha((unsigned char)text[1]) && tolower((unsigned char)text[1]) != 'e') {
        int base = tolower((unsigned char)text[1]) == 'x' ? 16 : tolower((unsigned char)text[1]) == 'b' ? 2 : 8;

        memcpy(digits, text + 2, len - 2);
        digits[len - 2] = '\0';
        if (mpz_set_str(mpq_numref(v->q), digits, base) < 0)
            return calc_fail(r, ERR_BUG, "a number without digits");
        return calc_check(r, v);
    }
    return calc_literal_decimal(r, text, len, v->q) < 0 ? -1 : calc_check(r, v);
}

/* --- operations --- */

static int calc_run_percent(struct calc_run *r, struct calc_value *a)
{
    struct calc_value hundred;

    calc_value_init(&hundred);
    mpq_set_ui(hundred.q, 100, 1);
    int rc = calc_divide(r, a, &hundred);
    calc_value_done(&hundred);
    return rc;
}

/* a + b% = a * (1 + b / 100); b is divided already. */
static int calc_run_share(struct calc_run *r, struct calc_value *a, struct calc_value *b, bool subtract)
{
    struct calc_value one;

    calc_value_init(&one);
    mpq_set_ui(one.q, 1, 1);
    int rc = calc_add(r, &one, b, subtract);
    if (rc == 0)
        rc = calc_multiply(r, a, &one);
    calc_value_done(&one);
    return rc;
}

static int calc_run_comparison(struct calc_run *r, enum calc_opcode code, struct calc_value *a, struct calc_value *b)
{
    int order;

    if (calc_compare(r, a, b, &order) < 0)
        return -1;
    a->kind = CALC_TRUTH;
    a->truth = code == CALC_OP_LESS            ? order < 0
               : code == CALC_OP_LESS_EQUAL    ? order <= 0
               : code == CALC_OP_EQUAL         ? order == 0
               : code == CALC_OP_NOT_EQUAL     ? order != 0
               : code == CALC_OP_GREATER_EQUAL ? order >= 0
                                               : order > 0;
    return 0;
}

/* The result replaces the first operand. */
static int calc_run_op(struct calc_run *r, const struct calc_op *op, struct calc_value *a)
{
    switch (op->code) {
    case CALC_OP_LITERAL:
        return calc_literal_read(r, r->text + op->position, op->length, a);
    case CALC_OP_CONSTANT:
        return op->function->call(r, a, 0);
    case CALC_OP_NEGATE:
        calc_negate(a);
        return 0;
    case CALC_OP_PERCENT:
        return calc_run_percent(r, a);
    case CALC_OP_DEGREES:
        return calc_degrees(r, a);
    case CALC_OP_FACTORIAL:
        return calc_factorial(r, a, 1);
    case CALC_OP_ADD:
        return calc_add(r, a, &a[1], false);
    case CALC_OP_SUBTRACT:
        return calc_add(r, a, &a[1], true);
    case CALC_OP_MULTIPLY:
        return calc_multiply(r, a, &a[1]);
    case CALC_OP_DIVIDE:
        return calc_divide(r, a, &a[1]);
    case CALC_OP_FLOOR_DIVIDE:
        return calc_floor_divide(r, a, &a[1]);
    case CALC_OP_MODULO:
        return calc_modulo(r, a, &a[1]);
    case CALC_OP_POWER:
        return calc_power(r, a, &a[1]);
    case CALC_OP_ADD_PERCENT:
        return calc_run_share(r, a, &a[1], false);
    case CALC_OP_SUBTRACT_PERCENT:
        return calc_run_share(r, a, &a[1], true);
    case CALC_OP_CALL:
        return op->function->call(r, a, op->arguments);
    case CALC_OP_LESS:
    case CALC_OP_LESS_EQUAL:
    case CALC_OP_EQUAL:
    case CALC_OP_NOT_EQUAL:
    case CALC_OP_GREATER_EQUAL:
    case CALC_OP_GREATER:
        return calc_run_comparison(r, op->code, a, &a[1]);
    }
    return calc_fail(r, ERR_BUG, "an unknown operation");
}

static size_t calc_op_operands(const struct calc_op *op)
{
    if (op->code <= CALC_OP_CONSTANT)
        return 0;
    if (op->code <= CALC_OP_FACTORIAL)
        return 1;
    return op->code == CALC_OP_CALL ? op->arguments : 2;
}

static bool calc_op_is_step(const struct calc_op *op)
{
    return op->code > CALC_OP_NEGATE;
}

int calc_program_run(const struct calc_program *p, struct calc_run *r, struct calc_steps *steps, struct calc_value *v)
{
    struct calc_value *stack = mem_new_array(struct calc_value, p->depth);
    size_t n = 0;
    int rc = 0;

    r->undecided = false;
    for (size_t i = 0; i < p->n && rc == 0; i++) {
        const struct calc_op *op = &p->ops[i];
        size_t operands = calc_op_operands(op);
        auto_buf text = { 0 };

        r->position = op->position;
        if (operands == 0)
            calc_value_init(&stack[n++]);
        struct calc_value *a = &stack[n - (operands ? operands : 1)];
        if (calc_op_is_step(op))
            calc_steps_begin(steps, op, a, &text);
        rc = calc_spend(r, 100 + 2 * op->length) < 0 ? -1 : calc_run_op(r, op, a);
        for (; operands > 1; operands--)
            calc_value_done(&stack[--n]);
        if (rc == 0)
            calc_steps_end(steps, &text, a);
    }
    if (rc == 0)
        calc_value_swap(v, &stack[0]);
    while (n > 0)
        calc_value_done(&stack[--n]);
    free(stack);
    return rc;
}
