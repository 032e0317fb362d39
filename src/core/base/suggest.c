/* A word is near if at most a third of its letters, and at most three, differ: a suggestion beyond
 * that would mislead. If the typed text is a prefix of the word ("mem" for "memory"), the distance
 * is 1, because users often abbreviate. */
#include "core/base/suggest.h"

#include "core/base/str.h"

static unsigned suggest_min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = a < b ? a : b;

    return m < c ? m : c;
}

unsigned suggest_distance(const char *a, const char *b)
{
    unsigned d[3][SUGGEST_MAX + 1]; /* the row before the previous one, the previous row, this row */
    size_t la = strlen(a), lb = strlen(b);

    if (la > SUGGEST_MAX || lb > SUGGEST_MAX)
        return UINT32_MAX;
    for (size_t j = 0; j <= lb; j++)
        d[1][j] = (unsigned)j;
    memcpy(d[0], d[1], sizeof(d[0]));
    for (size_t i = 1; i <= la; i++) {
        d[2][0] = (unsigned)i;
        for (size_t j = 1; j <= lb; j++) {
            d[2][j] = suggest_min3(d[1][j] + 1, d[2][j - 1] + 1, d[1][j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[0][j - 2] + 1 < d[2][j])
                d[2][j] = d[0][j - 2] + 1;
        }
        memcpy(d[0], d[1], sizeof(d[0]));
        memcpy(d[1], d[2], sizeof(d[1]));
    }
    return d[1][lb];
}

void suggest_init(struct suggest *s, const char *typed)
{
    size_t len = strlen(typed);
    unsigned reach = len > SUGGEST_MAX ? 0 : (unsigned)(len / 3);

    s->typed = typed;
    s->best = NULL;
    s->distance = (reach < 1 ? 1 : reach > 3 ? 3 : reach) + 1;
}

void suggest_offer(struct suggest *s, const char *word)
{
    unsigned n = suggest_distance(s->typed, word);

    if (n > 1 && strlen(s->typed) >= 2 && str_starts(word, s->typed))
        n = 1;
    if (n < s->distance) {
        s->best = word;
        s->distance = n;
    }
}
