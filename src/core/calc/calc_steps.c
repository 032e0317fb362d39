#include "core/calc/calc_steps.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#define LISTED_ARGUMENTS_MAX 8

void calc_steps_clear(struct calc_steps *s)
{
    for (size_t i = 0; i < s->n; i++)
        free(s->items[i]);
    *s = (struct calc_steps){ 0 };
}

void calc_steps_add(struct calc_steps *s, const char *text)
{
    if (!s)
        return;
    if (s->n == CALC_STEPS_MAX)
        s->omitted++;
    else
        s->items[s->n++] = str_dup(text);
}

/* Parentheses where the operand would read differently without them. */
static void calc_steps_operand(const struct calc_value *v, bool tight, struct buf *out)
{
    char text[CALC_SHORT_MAX];
    bool rounded;

    calc_format_short(v, text, &rounded);
    bool parentheses = text[0] == '-' || (tight && (strchr(text, '/') || strchr(text, '*')));
    buf_addf(out, parentheses ? "(%s)" : "%s", text);
}

static void calc_steps_call(const struct calc_op *op, const struct calc_value *args, struct buf *out)
{
    char text[CALC_SHORT_MAX];
    bool rounded;

    buf_addf(out, "%s(", op->function->name);
    for (size_t i = 0; i < op->arguments && i < LISTED_ARGUMENTS_MAX; i++) {
        calc_format_short(&args[i], text, &rounded);
        buf_addf(out, "%s%s", i ? ", " : "", text);
    }
    buf_adds(out, op->arguments > LISTED_ARGUMENTS_MAX ? ", ...)" : ")");
}

void calc_steps_begin(struct calc_steps *s, const struct calc_op *op, const struct calc_value *args, struct buf *ret)
{
    static const char *const infix[] = {
        [CALC_OP_ADD] = "+",     [CALC_OP_SUBTRACT] = "-",      [CALC_OP_MULTIPLY] = "*",
        [CALC_OP_DIVIDE] = "/",  [CALC_OP_FLOOR_DIVIDE] = "//", [CALC_OP_MODULO] = "mod",
        [CALC_OP_POWER] = "**",  [CALC_OP_LESS] = "<",          [CALC_OP_LESS_EQUAL] = "<=",
        [CALC_OP_EQUAL] = "==",  [CALC_OP_NOT_EQUAL] = "!=",    [CALC_OP_GREATER_EQUAL] = ">=",
        [CALC_OP_GREATER] = ">", [CALC_OP_ADD_PERCENT] = "+",   [CALC_OP_SUBTRACT_PERCENT] = "-",
    };
    bool tight = op->code != CALC_OP_ADD && op->code != CALC_OP_SUBTRACT && op->code < CALC_OP_LESS;

    if (!s)
        return;
    if (s->n == CALC_STEPS_MAX) {
        s->omitted++;
        return;
    }
    if (op->code == CALC_OP_CALL) {
        calc_steps_call(op, args, ret);
        return;
    }
    calc_steps_operand(&args[0], tight, ret);
    if (op->code == CALC_OP_FACTORIAL)
        buf_adds(ret, "!");
    else if (op->code == CALC_OP_PERCENT)
        buf_adds(ret, "%");
    else if (op->code == CALC_OP_DEGREES)
        buf_adds(ret, " degrees");
    else
        buf_addf(ret, " %s ", infix[op->code]);
    bool share = op->code == CALC_OP_ADD_PERCENT || op->code == CALC_OP_SUBTRACT_PERCENT;
    if (share || op->code >= CALC_OP_ADD) {
        calc_steps_operand(&args[1], tight, ret);
        if (share) {
            buf_adds(ret, " * ");
            calc_steps_operand(&args[0], true, ret);
        }
    }
}

void calc_steps_end(struct calc_steps *s, const struct buf *operation, const struct calc_value *result)
{
    char text[CALC_SHORT_MAX];
    bool rounded;

    if (!s || s->n == CALC_STEPS_MAX || operation->len == 0)
        return;
    calc_format_short(result, text, &rounded);
    s->items[s->n++] = str_printf("%s %s %s", operation->data,
                                  rounded                      ? "\u2248"
                                  : result->kind == CALC_TRUTH ? "is"
                                                               : "=",
                                  text);
}
