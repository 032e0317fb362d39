/* The grammar works on words. A phrase such as "the sum of 3 and 4" or "the square root of 16" ends
 * where its operands end; if an operator follows, it is not known whether the operator belongs to
 * the last operand or to the phrase, so the text is refused. */
#include "core/calc/calc_words.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/calc/calc.h"
#include "core/calc/calc_function.h"
#include "core/calc/calc_lexer.h"
#include "core/calc/calc_number_words.h"

#include <ctype.h>
#include <stdio.h>
#include <strings.h>

static const char *const calc_leads[] = {
    "what is",      "what's",        "whats",         "what does", "what do you get if you",
    "how much is",  "calculate",     "compute",       "evaluate",  "solve",
    "find",         "determine",     "work out",      "simplify",  "give me",
    "tell me",      "show me",       "please",        "can you",   "could you",
    "the value of", "the result of", "the answer to", "result of", "value of",
    "question",     "problem",
};

static size_t calc_lead_at(const char *text)
{
    for (size_t i = 0; i < ARRAY_LEN(calc_leads); i++) {
        size_t n = strlen(calc_leads[i]);

        if (strncasecmp(text, calc_leads[i], n) == 0 && !isalnum((unsigned char)text[n]) && text[n] != '_')
            return n;
    }
    return 0;
}

size_t calc_words_lead(const char *text)
{
    size_t at = 0, n;

    for (;;) {
        at += strspn(text + at, " \t\r\n");
        n = calc_lead_at(text + at);
        if (n == 0)
            return at;
        at += n;
        at += strspn(text + at, " \t\r\n:,");
    }
}

size_t calc_words_end(const char *text, size_t len)
{
    while (len > 0 && strchr(" \t\r\n?.=", text[len - 1]))
        len--;
    return len;
}

struct calc_words {
    const char *text;
    struct calc_word *words; /* the last one is CALC_WORD_END */
    size_t at;
    unsigned depth;
    struct err *err;
    struct err ignored; /* of a form of the problem that is tried and does not match */
};

static int calc_words_expression(struct calc_words *w, struct buf *out);
static int calc_words_item(struct calc_words *w, struct buf *out, bool in_list);

static int calc_words_fail(struct calc_words *w, const char *why)
{
    return err_set(w->err, ERR_CALC_SYNTAX, "%s", why);
}

static int calc_words_fail_here(struct calc_words *w)
{
    const struct calc_word *word = &w->words[w->at];
    char what[120];

    if (word->kind == CALC_WORD_END)
        snprintf(what, sizeof(what), "the problem ends where a number is expected");
    else
        snprintf(what, sizeof(what), "'%.*s' is not understood here; write the problem as a formula",
                 (int)min_size(word->length, 40), word->text);
    return calc_words_fail(w, what);
}

static int calc_words_fail_ambiguous(struct calc_words *w)
{
    return calc_words_fail(w, "the problem has more than one reading; write it as a formula with parentheses");
}

static bool calc_words_match(const struct calc_words *w, const char *phrase)
{
    return calc_word_match(&w->words[w->at], phrase) > 0;
}

static bool calc_words_accept(struct calc_words *w, const char *phrase)
{
    size_t n = calc_word_match(&w->words[w->at], phrase);

    w->at += n;
    return n > 0;
}

static bool calc_words_accept_any(struct calc_words *w, const char *const *phrases)
{
    for (; *phrases; phrases++)
        if (calc_words_accept(w, *phrases))
            return true;
    return false;
}

#define ACCEPT(w, ...) calc_words_accept_any(w, (const char *const[]){ __VA_ARGS__, NULL })

/* --- operands --- */

static bool calc_words_accept_number(struct calc_words *w, struct buf *out, bool in_list)
{
    size_t n = calc_number_words(&w->words[w->at], in_list, out);

    w->at += n;
    return n > 0;
}

/* A call as in a formula: the text between the parentheses is kept as it is. */
static bool calc_words_accept_call(struct calc_words *w, struct buf *out)
{
    const struct calc_word *name = &w->words[w->at], *open = name + 1;
    size_t i = 1, level = 0;

    if (name->kind != CALC_WORD_NAME)
        return false;
    const struct calc_function *f = calc_function_find(name->text, name->length);
    if (!f || (f->max > 0 && (open->kind != CALC_WORD_SYMBOL || *open->text != '(')))
        return false;
    if (f->max == 0) {
        buf_adds(out, f->name);
        w->at++;
        return true;
    }
    for (;; i++) {
        const struct calc_word *word = name + i;

        if (word->kind == CALC_WORD_END)
            return false;
        level += word->kind == CALC_WORD_SYMBOL && *word->text == '(';
        level -= word->kind == CALC_WORD_SYMBOL && *word->text == ')';
        if (level == 0)
            break;
    }
    buf_add(out, name->text, (size_t)(name[i].text + name[i].length - name->text));
    w->at += i + 1;
    return true;
}

/* --- phrases with one or more operands --- */

/* Continues a list after its first operand, which is written already: "3, 4 and 5". */
static int calc_words_list_rest(struct calc_words *w, const char *separator, size_t most, struct buf *out)
{
    size_t start = w->at - 1, n = 1;
    bool joinable = false;

    for (;;) {
        /* "one hundred and five": one number or two */
        joinable |= calc_number_words_joinable(&w->words[start], w->at - start);
        if (calc_words_match(w, "and then") || calc_words_match(w, ", then") || calc_words_match(w, ", and then"))
            break;
        bool comma = calc_words_accept(w, ",");
        if (!calc_words_accept(w, "and") && !comma)
            break;
        buf_adds(out, separator);
        start = w->at;
        if (calc_words_item(w, out, true) < 0)
            return -1;
        n++;
    }
    if (n < 2 || n > most)
        return calc_words_fail(w, n < 2 ? "the phrase needs a second number" : "the phrase has too many numbers");
    return joinable && n > 2 ? calc_words_fail_ambiguous(w) : 0;
}

static int calc_words_list(struct calc_words *w, const char *separator, size_t most, struct buf *out)
{
    return calc_words_item(w, out, true) < 0 ? -1 : calc_words_list_rest(w, separator, most, out);
}

/* "add 3 and 4", "add 3 to 4" */
static int calc_words_add(struct calc_words *w, struct buf *out)
{
    auto_buf first = { 0 };

    if (calc_words_item(w, &first, true) < 0)
        return -1;
    if (!calc_words_accept(w, "to")) {
        buf_adds(out, first.data);
        return calc_words_list_rest(w, " + ", CALC_ARGUMENTS_MAX, out);
    }
    if (calc_words_item(w, out, true) < 0)
        return -1;
    buf_addf(out, " + %s", first.data);
    return 0;
}

static int calc_words_two(struct calc_words *w, const char *between, const char *const *words, bool reversed,
                          struct buf *out)
{
    auto_buf first = { 0 }, second = { 0 };

    if (calc_words_item(w, &first, true) < 0)
        return -1;
    if (!calc_words_accept_any(w, words))
        return calc_words_fail_here(w);
    if (calc_words_item(w, &second, true) < 0)
        return -1;
    buf_addf(out, "%s%s%s", reversed ? second.data : first.data, between, reversed ? first.data : second.data);
    return 0;
}

static int calc_words_wrapped(struct calc_words *w, const char *before, const char *after, struct buf *out)
{
    buf_adds(out, before);
    if (calc_words_item(w, out, false) < 0)
        return -1;
    buf_adds(out, after);
    return 0;
}

static int calc_words_call_list(struct calc_words *w, const char *function, struct buf *out)
{
    buf_addf(out, "%s(", function);
    if (calc_words_list(w, ", ", CALC_ARGUMENTS_MAX, out) < 0)
        return -1;
    buf_adds(out, ")");
    return 0;
}

static const struct {
    const char *phrase, *before, *after;
} calc_unary_phrases[] = {
    { "square root of", "sqrt(", ")" },
    { "cube root of", "cbrt(", ")" },
    { "cubic root of", "cbrt(", ")" },
    { "square of", "(", ")**2" },
    { "cube of", "(", ")**3" },
    { "reciprocal of", "1 / (", ")" },
    { "absolute value of", "abs(", ")" },
    { "factorial of", "factorial(", ")" },
    { "natural logarithm of", "ln(", ")" },
    { "natural log of", "ln(", ")" },
    { "sine of", "sin(", ")" },
    { "cosine of", "cos(", ")" },
    { "tangent of", "tan(", ")" },
    { "half of", "(", ") / 2" },
    { "half", "(", ") / 2" },
    { "double", "2 * (", ")" },
    { "twice", "2 * (", ")" },
    { "triple", "3 * (", ")" },
    { "quarter of", "(", ") / 4" },
    { "a quarter of", "(", ") / 4" },
    { "a third of", "(", ") / 3" },
    { "negative", "-(", ")" },
}, calc_list_phrases[] = {
    { "average of", "mean", NULL },
    { "mean of", "mean", NULL },
    { "median of", "median", NULL },
    { "maximum of", "max", NULL },
    { "largest of", "max", NULL },
    { "minimum of", "min", NULL },
    { "smallest of", "min", NULL },
    { "greatest common divisor of", "gcd", NULL },
    { "highest common factor of", "gcd", NULL },
    { "greatest common factor of", "gcd", NULL },
    { "least common multiple of", "lcm", NULL },
    { "lowest common multiple of", "lcm", NULL },
};

/* 1: a phrase was read; 0: none begins here; -1: not understood. */
static int calc_words_phrase(struct calc_words *w, struct buf *out)
{
    static const char *const by[] = { "by", NULL }, *const with[] = { "by", "and", "with", NULL },
                             *const and[] = { "and", NULL }, *const from[] = { "from", NULL },
                             *const to[] = { "and", "to", NULL },
                             *const power[] = { "to the power of", "to the power", NULL },
                             *const divided[] = { "divided by", "is divided by", "and", NULL };
    size_t most = CALC_ARGUMENTS_MAX;

    (void)calc_words_accept(w, "the");
    for (size_t i = 0; i < ARRAY_LEN(calc_unary_phrases); i++)
        if (calc_words_accept(w, calc_unary_phrases[i].phrase))
            return calc_words_wrapped(w, calc_unary_phrases[i].before, calc_unary_phrases[i].after, out) < 0 ? -1 : 1;
    for (size_t i = 0; i < ARRAY_LEN(calc_list_phrases); i++)
        if (calc_words_accept(w, calc_list_phrases[i].phrase))
            return calc_words_call_list(w, calc_list_phrases[i].before, out) < 0 ? -1 : 1;
    if (ACCEPT(w, "sum of", "total of"))
        return calc_words_list(w, " + ", most, out) < 0 ? -1 : 1;
    if (calc_words_accept(w, "product of"))
        return calc_words_list(w, " * ", most, out) < 0 ? -1 : 1;
    if (ACCEPT(w, "difference between", "difference of")) {
        buf_adds(out, "abs(");
        if (calc_words_two(w, " - ", and, false, out) < 0)
            return -1;
        buf_adds(out, ")");
        return 1;
    }
    if (ACCEPT(w, "quotient of", "ratio of"))
        return calc_words_two(w, " / ", to, false, out) < 0 ? -1 : 1;
    if (ACCEPT(w, "remainder of", "remainder when"))
        return calc_words_two(w, " mod ", divided, false, out) < 0 ? -1 : 1;
    if (calc_words_accept(w, "add"))
        return calc_words_add(w, out) < 0 ? -1 : 1;
    if (ACCEPT(w, "subtract", "deduct"))
        return calc_words_two(w, " - ", from, true, out) < 0 ? -1 : 1;
    if (calc_words_accept(w, "multiply"))
        return calc_words_two(w, " * ", with, false, out) < 0 ? -1 : 1;
    if (calc_words_accept(w, "divide"))
        return calc_words_two(w, " / ", by, false, out) < 0 ? -1 : 1;
    if (calc_words_accept(w, "increase"))
        return calc_words_two(w, " + ", by, false, out) < 0 ? -1 : 1;
    if (ACCEPT(w, "decrease", "reduce"))
        return calc_words_two(w, " - ", by, false, out) < 0 ? -1 : 1;
    if (calc_words_accept(w, "raise"))
        return calc_words_two(w, " ** ", power, false, out) < 0 ? -1 : 1;
    return 0;
}

static int calc_words_parentheses(struct calc_words *w, struct buf *out)
{
    buf_adds(out, "(");
    if (calc_words_expression(w, out) < 0)
        return -1;
    if (!calc_words_accept(w, ")"))
        return calc_words_fail_here(w);
    buf_adds(out, ")");
    return 0;
}

/* An operand of a phrase: a number, a parenthesis, a call or another phrase. */
static int calc_words_item(struct calc_words *w, struct buf *out, bool in_list)
{
    int rc;

    if (++w->depth > CALC_DEPTH_MAX)
        return calc_words_fail(w, "the problem is nested too deeply");
    bool negative = ACCEPT(w, "-", "minus", "\u2212");
    if (negative)
        buf_adds(out, "(-");
    if (calc_words_accept_number(w, out, in_list)) {
        rc = 0;
        if (ACCEPT(w, "%", "percent"))
            buf_adds(out, "%");
        else if (ACCEPT(w, "degrees", "\u00b0"))
            buf_adds(out, " deg");
    } else if (calc_words_accept_call(w, out)) {
        rc = 0;
    } else if (calc_words_accept(w, "(")) {
        rc = calc_words_parentheses(w, out);
    } else {
        auto_buf phrase = { 0 };

        rc = calc_words_phrase(w, &phrase);
        if (rc == 0)
            rc = calc_words_fail_here(w);
        else if (rc > 0) {
            bool enclosed = out->len > 0 && out->data[out->len - 1] == '(';

            buf_addf(out, enclosed ? "%s" : "(%s)", phrase.data);
            rc = 0;
        }
    }
    if (negative)
        buf_adds(out, ")");
    w->depth--;
    return rc;
}

/* --- operators --- */

static const char *calc_words_operator(struct calc_words *w, bool additive)
{
    if (additive) {
        if (ACCEPT(w, "+", "plus", "increased by", "added to"))
            return " + ";
        if (ACCEPT(w, "-", "minus", "\u2212", "decreased by", "reduced by"))
            return " - ";
        return NULL;
    }
    if (ACCEPT(w, "*", "times", "multiplied by", "multiplied with", "x", "\u00d7", "\u00b7"))
        return " * ";
    if (ACCEPT(w, "divided by", "over", "\u00f7", "/"))
        return " / ";
    if (ACCEPT(w, "mod", "modulo"))
        return " mod ";
    return NULL;
}

static bool calc_words_accept_power(struct calc_words *w)
{
    return ACCEPT(w, "raised to the power of", "to the power of", "raised to the power", "to the power", "raised to",
                  "^");
}

static int calc_words_ordinal_power(struct calc_words *w, struct buf *out)
{
    static const char *const ordinals[] = { "second",  "third",  "fourth", "fifth", "sixth",
                                            "seventh", "eighth", "ninth",  "tenth" };

    for (size_t i = 0; i < ARRAY_LEN(ordinals); i++)
        if (calc_words_accept(w, ordinals[i])) {
            buf_addf(out, "**%zu", i + 2);
            return calc_words_accept(w, "power") ? 0 : calc_words_fail_here(w);
        }
    const struct calc_word *number = &w->words[w->at];
    if (number->kind != CALC_WORD_NUMBER)
        return calc_words_fail_here(w);
    buf_addf(out, "**%.*s", (int)number->length, number->text);
    w->at++;
    return ACCEPT(w, "th power", "st power", "nd power", "rd power") ? 0 : calc_words_fail_here(w);
}

/* *ret_open: the operand is a phrase, which an operator must not follow. */
static int calc_words_factor(struct calc_words *w, struct buf *out, bool *ret_open)
{
    *ret_open = false;
    if (++w->depth > CALC_DEPTH_MAX)
        return calc_words_fail(w, "the problem is nested too deeply");
    if (ACCEPT(w, "-", "minus", "negative", "\u2212")) {
        buf_adds(out, "-");
        int rc = calc_words_factor(w, out, ret_open);
        w->depth--;
        return rc;
    }
    if (calc_words_accept(w, "(")) {
        if (calc_words_parentheses(w, out) < 0)
            return -1;
    } else if (!calc_words_accept_number(w, out, false) && !calc_words_accept_call(w, out)) {
        auto_buf phrase = { 0 };
        int rc = calc_words_phrase(w, &phrase);

        if (rc <= 0)
            return rc < 0 ? -1 : calc_words_fail_here(w);
        buf_addf(out, out->len ? "(%s)" : "%s", phrase.data); /* no operator follows */
        *ret_open = true;
    }
    while (!*ret_open) {
        if (calc_words_accept(w, "squared"))
            buf_adds(out, "**2");
        else if (calc_words_accept(w, "cubed"))
            buf_adds(out, "**3");
        else if (ACCEPT(w, "factorial", "!"))
            buf_adds(out, "!");
        else if (ACCEPT(w, "degrees", "\u00b0"))
            buf_adds(out, " deg");
        else if (ACCEPT(w, "percent of", "% of", "per cent of")) {
            buf_adds(out, "% of ");
            if (calc_words_factor(w, out, ret_open) < 0)
                return -1;
            break;
        } else if (ACCEPT(w, "percent", "%", "per cent"))
            buf_adds(out, "%");
        else if (calc_words_accept_power(w)) {
            buf_adds(out, " ** ");
            if (calc_words_factor(w, out, ret_open) < 0)
                return -1;
            break;
        } else if (calc_words_accept(w, "to the")) {
            if (calc_words_ordinal_power(w, out) < 0)
                return -1;
        } else {
            break;
        }
    }
    w->depth--;
    return 0;
}

static int calc_words_expression(struct calc_words *w, struct buf *out)
{
    bool open, refused = false;

    if (calc_words_factor(w, out, &open) < 0)
        return -1;
    for (;;) {
        size_t start = w->at;
        const char *operator= calc_words_operator(w, true);

        if (!operator)
            operator= calc_words_operator(w, false);
        if (!operator) {
            refused |= open && ACCEPT(w, "squared", "cubed", "percent", "%", "!", "factorial", "^", "to the power of");
            return refused ? calc_words_fail_ambiguous(w) : 0;
        }
        refused |= open;
        bool reversed = calc_word_match(&w->words[start], "subtracted from") > 0;
        if (refused || reversed)
            return calc_words_fail_ambiguous(w);
        buf_adds(out, operator);
        if (calc_words_factor(w, out, &open) < 0)
            return -1;
    }
}

/* --- whole problems --- */

/* "20 is what percent of 80", "what percent of 80 is 20". 1: it is one. */
static int calc_words_share(struct calc_words *w, struct buf *out)
{
    static const char *const asks[] = { "what percent of", "what percentage of", "what per cent of", NULL };
    auto_buf part = { 0 }, whole = { 0 };
    size_t start = w->at;
    struct err *kept = w->err;
    int rc = 0;

    w->err = &w->ignored;
    if (calc_words_accept_any(w, asks)) {
        if (calc_words_item(w, &whole, true) == 0 && calc_words_accept(w, "is") && calc_words_item(w, &part, true) == 0)
            rc = 1;
    } else if (calc_words_item(w, &part, true) == 0 && calc_words_accept(w, "is") && calc_words_accept_any(w, asks) &&
               calc_words_item(w, &whole, true) == 0) {
        rc = 1;
    }
    w->err = kept;
    w->depth = 0;
    if (rc == 1)
        buf_addf(out, "%s / %s * 100", part.data, whole.data);
    else
        w->at = start;
    return rc;
}

/* "3 subtracted from 10". 1: it is one. */
static int calc_words_reversed(struct calc_words *w, struct buf *out)
{
    size_t start = w->at;
    struct err *kept = w->err;
    auto_buf text = { 0 };

    w->err = &w->ignored;
    int rc = calc_words_two(w, " - ", (const char *const[]){ "subtracted from", "less than", NULL }, true, &text);
    w->err = kept;
    w->depth = 0;
    if (rc == 0)
        buf_adds(out, text.data);
    else
        w->at = start;
    return rc == 0;
}

/* "..., then multiply by 3" */
static int calc_words_continue(struct calc_words *w, struct buf *out)
{
    static const struct {
        const char *phrase, *operator;
    } verbs[] = { { "add", " + " },
                  { "subtract", " - " },
                  { "multiply by", " * " },
                  { "multiply it by", " * " },
                  { "multiply the result by", " * " },
                  { "divide by", " / " },
                  { "divide it by", " / " },
                  { "divide the result by", " / " } };

    while (ACCEPT(w, ", and then", "and then", ", then", "then")) {
        auto_free char *before = str_dup(out->data);
        size_t i = 0;

        while (i < ARRAY_LEN(verbs) && !calc_words_accept(w, verbs[i].phrase))
            i++;
        if (i == ARRAY_LEN(verbs))
            return calc_words_fail_here(w);
        buf_clear(out);
        buf_addf(out, "(%s)%s", before, verbs[i].operator);
        if (out->len > CALC_INPUT_MAX || calc_words_item(w, out, false) < 0)
            return out->len > CALC_INPUT_MAX ? calc_words_fail(w, "the problem is too long") : -1;
    }
    return 0;
}

int calc_words_translate(const char *text, struct buf *formula, struct err *err)
{
    struct calc_words w = { .text = text, .words = calc_words_split(text), .err = err };
    int rc = 0;

    if (calc_words_share(&w, formula) == 0 && calc_words_reversed(&w, formula) == 0)
        rc = calc_words_expression(&w, formula);
    if (rc == 0)
        rc = calc_words_continue(&w, formula);
    if (rc == 0 && w.words[w.at].kind != CALC_WORD_END)
        rc = calc_words_fail_here(&w);
    free(w.words);
    return rc;
}
