#include "core/calc/calc_number_words.h"

#include "core/base/mem.h"
#include "core/calc/calc_lexer.h"

#include <ctype.h>
#include <strings.h>

static const char *const calc_units[] = { "zero",    "one",     "two",       "three",    "four",
                                          "five",    "six",     "seven",     "eight",    "nine",
                                          "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                                          "fifteen", "sixteen", "seventeen", "eighteen", "nineteen" };
static const char *const calc_tens[] = { "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety" };
static const struct {
    const char *name;
    uint64_t value;
} calc_magnitudes[] = { { "billion", 1000000000u }, { "million", 1000000u }, { "thousand", 1000u } };
/* Halves, thirds and so on. Index 0 is 2. */
static const char *const calc_fractions[][2] = {
    { "half", "halves" },    { "third", "thirds" }, { "quarter", "quarters" },
    { "fifth", "fifths" },   { "sixth", "sixths" }, { "seventh", "sevenths" },
    { "eighth", "eighths" }, { "ninth", "ninths" }, { "tenth", "tenths" },
};

struct calc_word *calc_words_split(const char *text)
{
    struct calc_word *words = mem_new_array(struct calc_word, strlen(text) + 1);
    size_t n = 0, at = 0;

    for (;;) {
        struct calc_token t = calc_lexer_next(text, at, false);
        const char *p = text + t.start;
        enum calc_word_kind kind = CALC_WORD_SYMBOL;

        if (t.kind == CALC_TOKEN_END)
            break;
        if (t.kind == CALC_TOKEN_NUMBER)
            kind = CALC_WORD_NUMBER;
        else if (isalpha((unsigned char)*p))
            kind = CALC_WORD_NAME;
        /* The hyphen of "twenty-one" */
        bool hyphen = t.kind == CALC_TOKEN_MINUS && n > 0 && words[n - 1].kind == CALC_WORD_NAME && !t.space_before &&
                      isalpha((unsigned char)p[1]);
        if (!hyphen)
            words[n++] = (struct calc_word){ kind, p, t.length };
        at = t.start + t.length;
    }
    words[n] = (struct calc_word){ CALC_WORD_END, text + strlen(text), 0 };
    return words;
}

static bool calc_word_is(const struct calc_word *word, const char *name, size_t length)
{
    return word->length == length && strncasecmp(word->text, name, length) == 0 && word->kind != CALC_WORD_END;
}

size_t calc_word_match(const struct calc_word *words, const char *phrase)
{
    size_t n = 0;

    while (*phrase) {
        size_t length = strcspn(phrase, " ");

        if (!calc_word_is(&words[n++], phrase, length))
            return 0;
        phrase += length;
        phrase += *phrase == ' ';
    }
    return n;
}

static bool calc_word_find(const struct calc_word *word, const char *const *names, size_t count, uint64_t *ret)
{
    for (size_t i = 0; i < count; i++)
        if (calc_word_is(word, names[i], strlen(names[i]))) {
            *ret = i;
            return true;
        }
    return false;
}

/* "twenty-one", "fifteen", "seven": below 100. */
static size_t calc_number_below_hundred(const struct calc_word *words, uint64_t *ret)
{
    uint64_t tens, unit;

    if (calc_word_find(words, calc_units, ARRAY_LEN(calc_units), ret))
        return 1;
    if (!calc_word_find(words, calc_tens, ARRAY_LEN(calc_tens), &tens))
        return 0;
    *ret = (tens + 2) * 10;
    if (calc_word_find(words + 1, calc_units, 10, &unit) && unit > 0) {
        *ret += unit;
        return 2;
    }
    return 1;
}

static size_t calc_number_below_thousand(const struct calc_word *words, bool in_list, uint64_t *ret)
{
    uint64_t rest;
    bool a = calc_word_match(words, "a hundred") || calc_word_match(words, "a thousand") ||
             calc_word_match(words, "a million") || calc_word_match(words, "a billion");
    size_t n = a ? 1 : calc_number_below_hundred(words, ret);

    if (a)
        *ret = 1;
    if (n == 0 || *ret == 0 || *ret > 9 || !calc_word_match(words + n, "hundred"))
        return n;
    n++;
    *ret *= 100;
    size_t joined = !in_list && calc_word_match(words + n, "and") ? 1 : 0;
    size_t more = calc_number_below_hundred(words + n + joined, &rest);
    if (more == 0 || rest == 0)
        return n;
    *ret += rest;
    return n + joined + more;
}

/* Thousands, millions and billions, in falling order. */
static size_t calc_number_integer(const struct calc_word *words, bool in_list, uint64_t *ret)
{
    uint64_t group;
    size_t n = 0, first = 0;

    *ret = 0;
    for (;;) {
        /* "one thousand and five" */
        size_t joined = n > 0 && !in_list && calc_word_match(words + n, "and") ? 1 : 0;
        size_t more = calc_number_below_thousand(words + n + joined, in_list, &group);
        size_t magnitude = first;

        if (more == 0 || (n > 0 && group == 0))
            return n;
        size_t after = n + joined + more;
        while (magnitude < ARRAY_LEN(calc_magnitudes) &&
               !calc_word_match(words + after, calc_magnitudes[magnitude].name))
            magnitude++;
        if (magnitude == ARRAY_LEN(calc_magnitudes)) {
            if (joined && group >= 100)
                return n;
            *ret += group;
            return after;
        }
        if (joined)
            return n;
        *ret += group * calc_magnitudes[magnitude].value;
        n = after + 1;
        first = magnitude + 1;
    }
}

/* "point five" after a number */
static size_t calc_number_decimals(const struct calc_word *words, struct buf *out)
{
    size_t n = 1;
    uint64_t digit;

    if (!calc_word_match(words, "point") || !calc_word_find(words + 1, calc_units, 10, &digit))
        return 0;
    buf_adds(out, ".");
    while (calc_word_find(words + n, calc_units, 10, &digit)) {
        buf_addf(out, "%" PRIu64, digit);
        n++;
    }
    return n;
}

/* "thirds" after "two". *ret: 3 */
static size_t calc_number_fraction(const struct calc_word *words, uint64_t *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(calc_fractions); i++)
        for (size_t plural = 0; plural < 2; plural++)
            if (calc_word_match(words, calc_fractions[i][plural])) {
                *ret = i + 2;
                return 1;
            }
    return 0;
}

/* A number in digits, without separators because commas separate the arguments of the call that it
 * may become an argument of; "2.5 million". */
static size_t calc_number_in_digits(const struct calc_word *words, struct buf *out)
{
    for (size_t i = 0; i < ARRAY_LEN(calc_magnitudes); i++)
        if (calc_word_match(words + 1, calc_magnitudes[i].name)) {
            buf_addf(out, "(%.*s * %" PRIu64 ")", (int)words[0].length, words[0].text, calc_magnitudes[i].value);
            return 2;
        }
    for (size_t i = 0; i < words[0].length; i++)
        if (words[0].text[i] != ',')
            buf_add(out, words[0].text + i, 1);
    return 1;
}

/* fractions: "two thirds" and "two thirds of 90" are read too. */
static size_t calc_number_read(const struct calc_word *words, bool in_list, bool fractions, struct buf *out)
{
    uint64_t value, parts;

    if (words[0].kind == CALC_WORD_NUMBER)
        return calc_number_in_digits(words, out);
    size_t n = calc_number_integer(words, in_list, &value);
    if (n == 0)
        return 0;
    if (fractions && calc_number_fraction(words + n, &parts)) {
        auto_buf whole = { 0 };
        size_t more = calc_word_match(words + n + 1, "of") ? calc_number_read(words + n + 2, in_list, false, &whole)
                                                           : 0;

        buf_addf(out, "(%" PRIu64 "/%" PRIu64 "%s%s)", value, parts, more ? " * " : "", more ? whole.data : "");
        return n + 1 + (more ? more + 1 : 0);
    }
    buf_addf(out, "%" PRIu64, value);
    return n + calc_number_decimals(words + n, out);
}

size_t calc_number_words(const struct calc_word *words, bool in_list, struct buf *out)
{
    return calc_number_read(words, in_list, true, out);
}

bool calc_number_words_joinable(const struct calc_word *words, size_t n)
{
    uint64_t value;
    bool round = n > 0 && (calc_word_match(words + n - 1, "hundred") || calc_word_match(words + n - 1, "thousand") ||
                           calc_word_match(words + n - 1, "million") || calc_word_match(words + n - 1, "billion"));

    return round && calc_word_match(words + n, "and") && calc_number_below_hundred(words + n + 1, &value) > 0;
}
