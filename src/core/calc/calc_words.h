/* calc_words.h - problems in English words as formulas: "subtract 3 from 10" is "10 - 3".
 *
 * Only phrases with one reading are translated. The formula is a part of the result, so a caller
 * sees how its words were read. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"

/* The length of a leading question or request without content, such as "What is ". */
size_t calc_words_lead(const char *text);
/* The length without closing question marks, dots, equals signs and spaces. */
size_t calc_words_end(const char *text, size_t len);

/* Writes the formula. -1: not understood; the message says why and may be shown. The text has at
 * most CALC_INPUT_MAX bytes. */
int calc_words_translate(const char *text, struct buf *formula, struct err *err);
