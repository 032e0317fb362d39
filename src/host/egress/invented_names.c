#include "host/egress/invented_names.h"

#include "core/base/hash.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/wire/egress.h"

#define BUCKETS 1024u

static uint32_t invented_names_bucket(const char *host)
{
    return (uint32_t)(hash_fold(hash_str(HASH_INIT, host)) % BUCKETS);
}

static void invented_names_free_all(struct invented_names *t)
{
    for (size_t i = 0; i < t->n; i++)
        free(t->names[i]);
    free(t->names);
    free(t->next);
    free(t->buckets);
}

void invented_names_done(struct invented_names *t)
{
    invented_names_free_all(t);
    *t = (struct invented_names){ 0 };
}

void invented_names_reset(struct invented_names *t)
{
    uint32_t first = t->first ? t->first + (uint32_t)t->n : EGRESS_ADDRESS_FIRST;

    invented_names_free_all(t);
    if (first > EGRESS_ADDRESS_LAST - INVENTED_NAMES_MAX)
        first = EGRESS_ADDRESS_FIRST;
    *t = (struct invented_names){ .first = first };
}

uint32_t invented_names_add(struct invented_names *t, const char *host)
{
    uint32_t bucket = invented_names_bucket(host);

    if (!t->first)
        t->first = EGRESS_ADDRESS_FIRST;
    for (uint32_t i = t->buckets ? t->buckets[bucket] : 0; i; i = t->next[i - 1])
        if (str_eq(t->names[i - 1], host))
            return t->first + i - 1;
    if (t->n == INVENTED_NAMES_MAX)
        return 0;
    if (!t->buckets)
        t->buckets = mem_alloc(BUCKETS * sizeof(*t->buckets));
    if ((t->n & (t->n - 1)) == 0) { /* 0 and powers of two: twice the space */
        size_t cap = t->n ? 2 * t->n : 1;

        t->names = mem_resize(t->names, cap, sizeof(*t->names));
        t->next = mem_resize(t->next, cap, sizeof(*t->next));
    }
    t->names[t->n] = str_dup(host);
    t->next[t->n] = t->buckets[bucket];
    t->buckets[bucket] = (uint32_t)++t->n;
    return t->first + (uint32_t)t->n - 1;
}

const char *invented_names_find(const struct invented_names *t, uint32_t address)
{
    if (address < t->first || address - t->first >= t->n)
        return NULL;
    return t->names[address - t->first];
}
