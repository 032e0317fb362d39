#include "core/calc/calc_lexer.h"

#include "core/base/str.h"

#include <ctype.h>

static const struct {
    const char *text;
    enum calc_token_kind kind;
} calc_symbols[] = {
    { "**", CALC_TOKEN_POWER },
    { "^", CALC_TOKEN_POWER },
    { "//", CALC_TOKEN_DOUBLE_SLASH },
    { "==", CALC_TOKEN_EQUAL },
    { "!=", CALC_TOKEN_NOT_EQUAL },
    { "<=", CALC_TOKEN_LESS_EQUAL },
    { ">=", CALC_TOKEN_GREATER_EQUAL },
    { "<", CALC_TOKEN_LESS },
    { ">", CALC_TOKEN_GREATER },
    { "=", CALC_TOKEN_EQUAL },
    { "+", CALC_TOKEN_PLUS },
    { "-", CALC_TOKEN_MINUS },
    { "\u2212", CALC_TOKEN_MINUS },
    { "*", CALC_TOKEN_TIMES },
    { "\u00d7", CALC_TOKEN_TIMES },
    { "\u00b7", CALC_TOKEN_TIMES },
    { "\u22c5", CALC_TOKEN_TIMES },
    { "/", CALC_TOKEN_SLASH },
    { "\u00f7", CALC_TOKEN_SLASH },
    { "\u2215", CALC_TOKEN_SLASH },
    { "%", CALC_TOKEN_PERCENT },
    { "!", CALC_TOKEN_FACTORIAL },
    { "(", CALC_TOKEN_OPEN },
    { ")", CALC_TOKEN_CLOSE },
    { ",", CALC_TOKEN_COMMA },
    { "\u00b0", CALC_TOKEN_DEGREE },
    { "\u221a", CALC_TOKEN_ROOT },
    { "\u00b2", CALC_TOKEN_SQUARED },
    { "\u00b3", CALC_TOKEN_CUBED },
    { "\u03c0", CALC_TOKEN_NAME },
    { "\u2264", CALC_TOKEN_LESS_EQUAL },
    { "\u2265", CALC_TOKEN_GREATER_EQUAL },
    { "\u2260", CALC_TOKEN_NOT_EQUAL },
};

static size_t calc_lexer_digits(const char *p)
{
    size_t n = 0;

    while (isdigit((unsigned char)p[n]) || (p[n] == '_' && n > 0 && isdigit((unsigned char)p[n + 1])))
        n++;
    return n;
}

/* 0x1F, 0b101 or 0o17; 0: none of them. */
static size_t calc_lexer_based_number(const char *p)
{
    static const char *const digits[] = { "0123456789abcdefABCDEF", "01", "01234567" };
    const char *base = p[0] == '0' && p[1] ? strchr("xbo", tolower((unsigned char)p[1])) : NULL;

    if (!base)
        return 0;
    size_t n = strspn(p + 2, digits[base - "xbo"]);
    return n ? n + 2 : 0;
}

/* Groups of three digits after the first group of one to three: ",234,567". */
static size_t calc_lexer_groups(const char *p)
{
    size_t n = 0;

    while (p[n] == ',' && isdigit((unsigned char)p[n + 1]) && isdigit((unsigned char)p[n + 2]) &&
           isdigit((unsigned char)p[n + 3]) && !isdigit((unsigned char)p[n + 4]))
        n += 4;
    return n;
}

static size_t calc_lexer_number(const char *p, bool commas_separate)
{
    size_t based = calc_lexer_based_number(p), n;

    if (based)
        return based;
    n = calc_lexer_digits(p);
    if (n > 0 && n <= 3 && p[0] != '0' && !commas_separate && !memchr(p, '_', n))
        n += calc_lexer_groups(p + n);
    if (p[n] == '.')
        n += 1 + calc_lexer_digits(p + n + 1);
    if (p[n] == 'e' || p[n] == 'E') {
        size_t sign = p[n + 1] == '+' || p[n + 1] == '-';
        size_t exponent = calc_lexer_digits(p + n + 1 + sign);

        if (exponent)
            n += 1 + sign + exponent;
    }
    return n;
}

static bool calc_is_name_byte(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

struct calc_token calc_lexer_next(const char *text, size_t from, bool commas_separate)
{
    struct calc_token t = { .kind = CALC_TOKEN_BAD, .length = 1 };
    const char *p = text + from;

    while (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r')
        p++;
    t.start = (size_t)(p - text);
    t.space_before = t.start > from || from == 0;
    if (*p == '\0') {
        t.kind = CALC_TOKEN_END;
        t.length = 0;
    } else if (isdigit((unsigned char)*p) || (*p == '.' && isdigit((unsigned char)p[1]))) {
        t.kind = CALC_TOKEN_NUMBER;
        t.length = calc_lexer_number(p, commas_separate);
    } else if (isalpha((unsigned char)*p)) {
        t.kind = CALC_TOKEN_NAME;
        while (calc_is_name_byte(p[t.length]))
            t.length++;
    } else {
        for (size_t i = 0; i < ARRAY_LEN(calc_symbols); i++)
            if (str_starts(p, calc_symbols[i].text)) {
                t.kind = calc_symbols[i].kind;
                t.length = strlen(calc_symbols[i].text);
                return t;
            }
        uint32_t character;
        size_t length = str_utf8(p, strlen(p), &character);
        t.length = length ? length : 1;
    }
    return t;
}
