/* suggest.h - finds the known word that is nearest to a mistyped word. */
#pragma once

#include "core/base/base.h"

struct suggest {
    const char *typed;
    const char *best; /* NULL while no word is near enough */
    unsigned distance;
};

void suggest_init(struct suggest *s, const char *typed);
void suggest_offer(struct suggest *s, const char *word); /* keeps `word` if it is nearer than `best` */

/* Number of single edits between two words: insert, delete, replace, swap of neighbours. The
 * distance to a word of more than SUGGEST_MAX letters is infinite. */
#define SUGGEST_MAX 32
unsigned suggest_distance(const char *a, const char *b);
