/* A recursive descent over the tokens; each level of precedence is one function. From loose to
 * tight: comparison; + -; * / // % mod; signs; powers, from right to left; and what follows an
 * operand: ! % degrees. `of` after a percentage binds like a power.
 *
 * Two readings are decided by rule and documented in docs/calculate.md: `%` is the remainder if an
 * operand follows, otherwise a percentage; and a percentage added to or subtracted from a number is
 * a share of that number. Text with two readings that no rule decides is refused. */
#include "core/calc/calc_program.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/calc/calc_lexer.h"

#include <stdio.h>
#include <strings.h>

struct calc_parser {
    struct calc_program *program;
    struct calc_token token; /* the next one */
    size_t end;              /* byte after the last token that was taken */
    size_t values, cap;      /* on the stack now; capacity of program->ops */
    unsigned depth;
    bool in_call; /* commas separate arguments */
    struct err *err;
};

/* A property of a parsed operand: it is a percentage such as 15%, without parentheses. */
struct calc_operand {
    bool percentage;
};

static int calc_parse_sum(struct calc_parser *p);
static int calc_parse_sign(struct calc_parser *p, struct calc_operand *ret);

static int calc_parse_fail(struct calc_parser *p, enum err_id id, size_t position, const char *what)
{
    struct calc_run at = { .text = p->program->text, .position = position, .err = p->err };

    return calc_fail(&at, id, "%s", what);
}

static void calc_parser_advance(struct calc_parser *p)
{
    p->end = p->token.start + p->token.length;
    p->token = calc_lexer_next(p->program->text, p->end, p->in_call);
}

static bool calc_parser_accept(struct calc_parser *p, enum calc_token_kind kind)
{
    if (p->token.kind != kind)
        return false;
    calc_parser_advance(p);
    return true;
}

static bool calc_token_is_word(const struct calc_parser *p, const char *word)
{
    return p->token.kind == CALC_TOKEN_NAME && p->token.length == strlen(word) &&
           strncasecmp(p->program->text + p->token.start, word, p->token.length) == 0;
}

/* `taken` values of the stack are replaced by one. */
static void calc_parser_emit(struct calc_parser *p, struct calc_op op, size_t taken)
{
    struct calc_program *g = p->program;

    if (g->n == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 16;
        g->ops = mem_resize(g->ops, p->cap, sizeof(*g->ops));
    }
    g->ops[g->n++] = op;
    p->values += 1 - taken;
    if (p->values > g->depth)
        g->depth = p->values;
}

static int calc_parser_enter(struct calc_parser *p)
{
    if (++p->depth <= CALC_DEPTH_MAX)
        return 0;
    return calc_parse_fail(p, ERR_CALC_LIMIT, p->token.start,
                           "the expression is nested too deeply; at most 100 levels are allowed");
}

/* --- operands --- */

static int calc_parse_unexpected(struct calc_parser *p)
{
    const struct calc_token *t = &p->token;
    char what[120];

    if (t->kind == CALC_TOKEN_END)
        return calc_parse_fail(p, ERR_CALC_SYNTAX, t->start, "the expression ends where a number is expected");
    snprintf(what, sizeof(what), "'%.*s' is not expected here; a number, a function or '(' is",
             (int)min_size(t->length, 40), p->program->text + t->start);
    return calc_parse_fail(p, ERR_CALC_SYNTAX, t->start, what);
}

/* Numbers such as 1,000 and arguments such as max(1,234) look alike. A call that separates some
 * arguments with a space and has a group of three digits without one has two readings. */
struct calc_comma_use {
    bool spaced, grouped;
};

static int calc_parse_argument(struct calc_parser *p, struct calc_comma_use *use)
{
    const char *text = p->program->text;
    size_t start = p->token.start;
    bool zero = p->token.kind == CALC_TOKEN_NUMBER && p->token.length > 1 && text[start] == '0' &&
                text[start + 1] >= '0' && text[start + 1] <= '9';
    bool three = p->token.kind == CALC_TOKEN_NUMBER && p->token.length >= 3 && !p->token.space_before &&
                 strspn(text + start, "0123456789") == 3;

    use->spaced |= p->token.space_before;
    use->grouped |= three;
    if (zero || (use->spaced && use->grouped))
        return calc_parse_fail(p, ERR_CALC_SYNTAX, start,
                               "a comma here could separate thousands or arguments; write 1000 for a thousand");
    return calc_parse_sum(p);
}

static int calc_parse_call(struct calc_parser *p, const struct calc_function *f, size_t position, size_t length)
{
    bool outer = p->in_call;
    struct calc_comma_use use = { 0 };
    char what[120];
    size_t n = 1;

    p->in_call = true;
    calc_parser_advance(p); /* the parenthesis */
    if (p->token.kind == CALC_TOKEN_CLOSE)
        return calc_parse_unexpected(p);
    if (calc_parse_sum(p) < 0)
        return -1;
    while (p->token.kind == CALC_TOKEN_COMMA) {
        calc_parser_advance(p);
        if (++n > CALC_ARGUMENTS_MAX)
            return calc_parse_fail(p, ERR_CALC_LIMIT, p->token.start, "a call has at most 256 arguments");
        if (calc_parse_argument(p, &use) < 0)
            return -1;
    }
    p->in_call = outer;
    if (p->token.kind != CALC_TOKEN_CLOSE)
        return calc_parse_fail(p, ERR_CALC_SYNTAX, p->token.start, "a closing parenthesis is expected here");
    calc_parser_advance(p);
    if (n < f->min || n > f->max) {
        snprintf(what, sizeof(what), "%s takes %zu%s%s argument%s, not %zu", f->name, f->min,
                 f->max > f->min ? " or more" : "", "", f->min == 1 && f->max == 1 ? "" : "s", n);
        return calc_parse_fail(p, ERR_CALC_SYNTAX, position, what);
    }
    calc_parser_emit(p, (struct calc_op){ CALC_OP_CALL, position, length, f, n }, n);
    return 0;
}

static int calc_parse_name(struct calc_parser *p)
{
    size_t position = p->token.start, length = p->token.length;
    const char *name = p->program->text + position;
    const struct calc_function *f = str_starts(name, "\u03c0") ? calc_function_find("pi", 2)
                                                               : calc_function_find(name, length);
    char what[160];

    if (!f) {
        snprintf(what, sizeof(what), "'%.*s' is not a function or constant; docs/calculate.md lists them",
                 (int)min_size(length, 40), name);
        return calc_parse_fail(p, ERR_CALC_SYNTAX, position, what);
    }
    calc_parser_advance(p);
    if (f->max == 0) {
        calc_parser_emit(p, (struct calc_op){ CALC_OP_CONSTANT, position, length, f, 0 }, 0);
        return 0;
    }
    if (p->program->type == CALC_ARITHMETIC)
        p->program->type = CALC_FUNCTION;
    if (p->token.kind != CALC_TOKEN_OPEN) {
        snprintf(what, sizeof(what), "%s is a function; write its argument in parentheses: %s(...)", f->name, f->name);
        return calc_parse_fail(p, ERR_CALC_SYNTAX, position, what);
    }
    return calc_parse_call(p, f, position, length);
}

static int calc_parse_parentheses(struct calc_parser *p)
{
    bool outer = p->in_call;

    p->in_call = false;
    calc_parser_advance(p);
    if (calc_parse_sum(p) < 0)
        return -1;
    p->in_call = outer;
    if (p->token.kind != CALC_TOKEN_CLOSE)
        return calc_parse_fail(p, ERR_CALC_SYNTAX, p->token.start, "a closing parenthesis is expected here");
    calc_parser_advance(p);
    return 0;
}

static int calc_parse_primary(struct calc_parser *p)
{
    struct calc_token t = p->token;
    int rc = -1;

    if (t.kind == CALC_TOKEN_NUMBER) {
        calc_parser_emit(p, (struct calc_op){ CALC_OP_LITERAL, t.start, t.length, NULL, 0 }, 0);
        calc_parser_advance(p);
        return 0;
    }
    if (calc_parser_enter(p) < 0)
        return -1;
    if (t.kind == CALC_TOKEN_NAME) {
        rc = calc_parse_name(p);
    } else if (t.kind == CALC_TOKEN_OPEN) {
        rc = calc_parse_parentheses(p);
    } else if (t.kind == CALC_TOKEN_ROOT) {
        const struct calc_function *f = calc_function_find("sqrt", 4);

        calc_parser_advance(p);
        if (p->program->type == CALC_ARITHMETIC)
            p->program->type = CALC_FUNCTION;
        rc = calc_parse_primary(p);
        if (rc == 0)
            calc_parser_emit(p, (struct calc_op){ CALC_OP_CALL, t.start, t.length, f, 1 }, 1);
    } else {
        rc = calc_parse_unexpected(p);
    }
    p->depth--;
    return rc;
}

/* Whether the token can begin an operand: without an operator before it, it follows another one. */
static bool calc_begins_operand(enum calc_token_kind kind)
{
    return kind == CALC_TOKEN_NUMBER || kind == CALC_TOKEN_NAME || kind == CALC_TOKEN_OPEN || kind == CALC_TOKEN_ROOT;
}

/* The token is '%'. *ret: it is a percentage and was taken; otherwise it is the remainder. */
static int calc_parse_percent(struct calc_parser *p, bool *ret)
{
    struct calc_token percent = p->token;
    struct calc_token next = calc_lexer_next(p->program->text, percent.start + percent.length, p->in_call);
    bool of = next.kind == CALC_TOKEN_NAME && next.length == 2 &&
              strncasecmp(p->program->text + next.start, "of", 2) == 0;
    bool mod = next.kind == CALC_TOKEN_NAME && next.length == 3 &&
               strncasecmp(p->program->text + next.start, "mod", 3) == 0;

    if (percent.space_before && (next.kind == CALC_TOKEN_PLUS || next.kind == CALC_TOKEN_MINUS))
        return calc_parse_fail(p, ERR_CALC_SYNTAX, percent.start,
                               "'%' could be a percentage or the remainder; write (10%) - 3 or mod(10, -3)");
    *ret = of || mod || !calc_begins_operand(next.kind);
    if (!*ret)
        return 0;
    calc_parser_advance(p);
    p->program->type = CALC_PERCENTAGE;
    calc_parser_emit(p, (struct calc_op){ CALC_OP_PERCENT, percent.start, percent.length, NULL, 0 }, 1);
    return 0;
}

static bool calc_accept_degrees(struct calc_parser *p)
{
    if (p->token.kind != CALC_TOKEN_DEGREE && !calc_token_is_word(p, "deg") && !calc_token_is_word(p, "degree") &&
        !(calc_token_is_word(p, "degrees") && p->program->text[p->token.start + p->token.length] != '('))
        return false;
    calc_parser_advance(p);
    return true;
}

static int calc_parse_postfix(struct calc_parser *p, struct calc_operand *ret)
{
    *ret = (struct calc_operand){ 0 };
    if (calc_parse_primary(p) < 0)
        return -1;
    for (;;) {
        struct calc_token t = p->token;
        bool percent = false;

        if (t.kind == CALC_TOKEN_PERCENT) {
            if (calc_parse_percent(p, &percent) < 0)
                return -1;
            if (!percent)
                return 0;
            ret->percentage = true;
        } else if (calc_parser_accept(p, CALC_TOKEN_FACTORIAL)) {
            calc_parser_emit(p, (struct calc_op){ CALC_OP_FACTORIAL, t.start, t.length, NULL, 0 }, 1);
            ret->percentage = false;
        } else if (calc_accept_degrees(p)) {
            calc_parser_emit(p, (struct calc_op){ CALC_OP_DEGREES, t.start, t.length, NULL, 0 }, 1);
            ret->percentage = false;
        } else {
            break;
        }
    }
    if (ret->percentage && calc_token_is_word(p, "of")) {
        size_t position = p->token.start;
        struct calc_operand whole;

        calc_parser_advance(p);
        if (calc_parser_enter(p) < 0 || calc_parse_sign(p, &whole) < 0)
            return -1;
        p->depth--;
        calc_parser_emit(p, (struct calc_op){ CALC_OP_MULTIPLY, position, 2, NULL, 0 }, 2);
        ret->percentage = whole.percentage;
    }
    return 0;
}

/* --- operators --- */

static int calc_parse_power(struct calc_parser *p, struct calc_operand *ret)
{
    struct calc_operand exponent;

    if (calc_parse_postfix(p, ret) < 0)
        return -1;
    while (p->token.kind == CALC_TOKEN_SQUARED || p->token.kind == CALC_TOKEN_CUBED) {
        struct calc_token t = p->token;

        calc_parser_advance(p);
        ret->percentage = false;
        calc_parser_emit(p, (struct calc_op){ CALC_OP_LITERAL, t.start, t.length, NULL, 0 }, 0);
        calc_parser_emit(p, (struct calc_op){ CALC_OP_POWER, t.start, t.length, NULL, 0 }, 2);
    }
    size_t position = p->token.start;
    if (!calc_parser_accept(p, CALC_TOKEN_POWER))
        return 0;
    if (calc_parser_enter(p) < 0 || calc_parse_sign(p, &exponent) < 0)
        return -1;
    p->depth--;
    ret->percentage = false;
    calc_parser_emit(p, (struct calc_op){ CALC_OP_POWER, position, 1, NULL, 0 }, 2);
    return 0;
}

static int calc_parse_sign(struct calc_parser *p, struct calc_operand *ret)
{
    size_t position = p->token.start;
    int rc;

    if (p->token.kind != CALC_TOKEN_PLUS && p->token.kind != CALC_TOKEN_MINUS)
        return calc_parse_power(p, ret);
    bool negate = p->token.kind == CALC_TOKEN_MINUS;
    if (calc_parser_enter(p) < 0)
        return -1;
    calc_parser_advance(p);
    rc = calc_parse_sign(p, ret);
    p->depth--;
    if (rc == 0 && negate)
        calc_parser_emit(p, (struct calc_op){ CALC_OP_NEGATE, position, 1, NULL, 0 }, 1);
    return rc;
}

static int calc_parse_product(struct calc_parser *p, struct calc_operand *ret)
{
    struct calc_operand right;

    if (calc_parse_sign(p, ret) < 0)
        return -1;
    for (;;) {
        struct calc_token t = p->token;
        enum calc_opcode code;

        switch (t.kind) {
        case CALC_TOKEN_TIMES:
            code = CALC_OP_MULTIPLY;
            break;
        case CALC_TOKEN_SLASH:
            code = CALC_OP_DIVIDE;
            break;
        case CALC_TOKEN_DOUBLE_SLASH:
            code = CALC_OP_FLOOR_DIVIDE;
            break;
        case CALC_TOKEN_PERCENT:
            code = CALC_OP_MODULO;
            break;
        default:
            if (!calc_token_is_word(p, "mod"))
                return 0;
            code = CALC_OP_MODULO;
        }
        calc_parser_advance(p);
        if (calc_parse_sign(p, &right) < 0)
            return -1;
        ret->percentage = false;
        calc_parser_emit(p, (struct calc_op){ code, t.start, t.length, NULL, 0 }, 2);
    }
}

static int calc_parse_sum(struct calc_parser *p)
{
    struct calc_operand left, right;

    if (calc_parse_product(p, &left) < 0)
        return -1;
    while (p->token.kind == CALC_TOKEN_PLUS || p->token.kind == CALC_TOKEN_MINUS) {
        struct calc_token t = p->token;
        bool plus = t.kind == CALC_TOKEN_PLUS;

        calc_parser_advance(p);
        if (calc_parse_product(p, &right) < 0)
            return -1;
        bool share = right.percentage && !left.percentage;
        enum calc_opcode code = share ? (plus ? CALC_OP_ADD_PERCENT : CALC_OP_SUBTRACT_PERCENT)
                                      : (plus ? CALC_OP_ADD : CALC_OP_SUBTRACT);
        left.percentage &= right.percentage;
        calc_parser_emit(p, (struct calc_op){ code, t.start, t.length, NULL, 0 }, 2);
    }
    return 0;
}

static int calc_parse_comparison(struct calc_parser *p)
{
    if (calc_parse_sum(p) < 0)
        return -1;
    struct calc_token t = p->token;
    if (t.kind < CALC_TOKEN_LESS || t.kind > CALC_TOKEN_GREATER)
        return 0;
    calc_parser_advance(p);
    if (t.kind == CALC_TOKEN_EQUAL && p->token.kind == CALC_TOKEN_END)
        return 0; /* "2 + 2 =" */
    if (calc_parse_sum(p) < 0)
        return -1;
    if (p->token.kind >= CALC_TOKEN_LESS && p->token.kind <= CALC_TOKEN_GREATER)
        return calc_parse_fail(p, ERR_CALC_SYNTAX, p->token.start,
                               "comparisons cannot be chained; compare two numbers");
    p->program->type = CALC_COMPARISON;
    calc_parser_emit(
        p, (struct calc_op){ CALC_OP_LESS + (enum calc_opcode)(t.kind - CALC_TOKEN_LESS), t.start, t.length, NULL, 0 },
        2);
    return 0;
}

/* After a complete expression: the reason why the next token cannot follow. */
static int calc_parse_trailing(struct calc_parser *p)
{
    const struct calc_token *t = &p->token;
    char what[120];

    if (calc_begins_operand(t->kind))
        return calc_parse_fail(p, ERR_CALC_SYNTAX, t->start,
                               "an operator is expected here; write a product with '*', such as 2 * pi");
    if (t->kind == CALC_TOKEN_COMMA)
        return calc_parse_fail(p, ERR_CALC_SYNTAX, t->start,
                               "a comma separates arguments or groups of three digits; write decimals with a dot");
    snprintf(what, sizeof(what), "'%.*s' is not expected here; an operator or the end is", (int)min_size(t->length, 40),
             p->program->text + t->start);
    return calc_parse_fail(p, ERR_CALC_SYNTAX, t->start, what);
}

int calc_program_parse(const char *text, struct calc_program *ret, struct err *err)
{
    struct calc_parser p = { .program = ret, .err = err };

    *ret = (struct calc_program){ .text = text, .type = CALC_ARITHMETIC };
    p.token = calc_lexer_next(text, 0, false);
    if (p.token.kind == CALC_TOKEN_END) {
        err_set(err, ERR_CALC_SYNTAX, "the expression is empty; write a formula such as 1/3 + 1/6");
        return -1;
    }
    if (calc_parse_comparison(&p) < 0 || (p.token.kind != CALC_TOKEN_END && calc_parse_trailing(&p) < 0)) {
        calc_program_done(ret);
        return -1;
    }
    return 0;
}

void calc_program_done(struct calc_program *p)
{
    free(p->ops);
    p->ops = NULL;
    p->n = 0;
}
