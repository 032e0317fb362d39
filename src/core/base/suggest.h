/* suggest.h - the nearest known word to a mistyped one. */
#pragma once

#include "core/base/base.h"

struct suggest {
    const char *typed;
    const char *best; /* NULL while nothing is near enough */
    unsigned distance;
};

void suggest_init(struct suggest *s, const char *typed);
void suggest_offer(struct suggest *s, const char *word); /* keeps `word` if it is nearer than what it has */

/* Single edits between two words: insert, delete, replace, swap of neighbours. Words over SUGGEST_MAX letters are
 * infinitely far from everything. */
#define SUGGEST_MAX 32
unsigned suggest_distance(const char *a, const char *b);
