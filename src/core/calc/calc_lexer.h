/* calc_lexer.h - the tokens of a formula. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

enum calc_token_kind {
    CALC_TOKEN_END,
    CALC_TOKEN_NUMBER,
    CALC_TOKEN_NAME,
    CALC_TOKEN_OPEN,
    CALC_TOKEN_CLOSE,
    CALC_TOKEN_COMMA,
    CALC_TOKEN_PLUS,
    CALC_TOKEN_MINUS,
    CALC_TOKEN_TIMES,
    CALC_TOKEN_SLASH,
    CALC_TOKEN_DOUBLE_SLASH,
    CALC_TOKEN_PERCENT,
    CALC_TOKEN_POWER,
    CALC_TOKEN_SQUARED,
    CALC_TOKEN_CUBED,
    CALC_TOKEN_FACTORIAL,
    CALC_TOKEN_DEGREE,
    CALC_TOKEN_ROOT,
    CALC_TOKEN_LESS,
    CALC_TOKEN_LESS_EQUAL,
    CALC_TOKEN_EQUAL,
    CALC_TOKEN_NOT_EQUAL,
    CALC_TOKEN_GREATER_EQUAL,
    CALC_TOKEN_GREATER,
    CALC_TOKEN_BAD,
};

struct calc_token {
    enum calc_token_kind kind;
    size_t start, length; /* bytes */
    bool space_before;
};

/* The next token at or after byte `from`. commas_separate: "1,234" is two numbers, as in the
 * arguments of a call; otherwise a comma between groups of three digits belongs to the number. */
struct calc_token calc_lexer_next(const char *text, size_t from, bool commas_separate);
