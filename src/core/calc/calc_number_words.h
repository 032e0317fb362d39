/* calc_number_words.h - the words of a problem, and numbers written in words: "twenty-one". */
#pragma once

#include "core/base/buf.h"

enum calc_word_kind { CALC_WORD_END, CALC_WORD_NAME, CALC_WORD_NUMBER, CALC_WORD_SYMBOL };

struct calc_word {
    enum calc_word_kind kind;
    const char *text; /* in the problem */
    size_t length;
};

/* All words, of which the last one is CALC_WORD_END. The caller frees the array. */
struct calc_word *calc_words_split(const char *text);
/* The number of words that a phrase takes if it begins here in any case; 0: it does not. */
size_t calc_word_match(const struct calc_word *words, const char *phrase);

/* Writes the number that begins here, in digits or words, as an operand of a formula. in_list:
 * "and" separates numbers and does not continue "one hundred and five". Returns the number of
 * words; 0: no number begins here. */
size_t calc_number_words(const struct calc_word *words, bool in_list, struct buf *out);
/* Whether these n words are a number that "and" and the word after it could continue. */
bool calc_number_words_joinable(const struct calc_word *words, size_t n);
