/* An entry lives from its first refusal to the end of its window; then it gives its place to another. The entry that
 * everybody shares who finds no place is the last of the table and has no name. */
#include "audit/flood.h"

#include "base/mem.h"

#include <stdio.h>

struct entry {
    bool used;
    uint64_t hash;
    uint64_t since_ns, since_ms;
    unsigned single;
    uint64_t count;
    struct flood_kind what;
};

struct flood {
    struct entry entries[FLOOD_KINDS + 1]; /* the last one: all that found no place */
    uint64_t full_at;                      /* of the bucket (GCRA) */
};

struct flood *flood_new(void)
{
    return mem_new(struct flood);
}

void flood_free(struct flood *f)
{
    free(f);
}

static uint64_t mix(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3ull;
    return (h ^ 0xff) * 0x100000001b3ull;
}

static uint64_t hash_of(const struct flood_kind *k)
{
    uint64_t h = 0xcbf29ce484222325ull ^ (unsigned)k->status;

    h = mix(mix(mix(mix(h, k->tenant), k->kind), k->actor), k->user);
    return mix(mix(mix(h, k->address), k->action), k->error);
}

static bool same(const struct flood_kind *a, const struct flood_kind *b)
{
    return a->status == b->status && !strcmp(a->actor, b->actor) && !strcmp(a->user, b->user) &&
           !strcmp(a->address, b->address) && !strcmp(a->action, b->action) && !strcmp(a->error, b->error) &&
           !strcmp(a->tenant, b->tenant) && !strcmp(a->kind, b->kind);
}

static bool over(const struct entry *e, uint64_t now_ns)
{
    return now_ns >= e->since_ns + FLOOD_WINDOW_NS;
}

static struct entry *find(struct flood *f, const struct flood_kind *what, uint64_t now_ns, uint64_t now_ms)
{
    uint64_t hash = hash_of(what);
    struct entry *free_one = NULL;

    for (size_t i = 0; i < FLOOD_KINDS; i++) {
        struct entry *e = &f->entries[i];

        if (e->used && e->hash == hash && same(&e->what, what))
            return e;
        if (!free_one && (!e->used || (over(e, now_ns) && !e->count)))
            free_one = e;
    }
    struct entry *e = free_one ? free_one : &f->entries[FLOOD_KINDS];
    if (free_one)
        *e = (struct entry){ .used = true, .hash = hash, .since_ns = now_ns, .since_ms = now_ms, .what = *what };
    else if (!e->used)
        *e = (struct entry){
            .used = true, .since_ns = now_ns, .since_ms = now_ms, .what = { .kind = "many", .action = "request.refuse" }
        };
    return e;
}

static bool bucket_take(struct flood *f, uint64_t now_ns)
{
    uint64_t interval = NS_PER_S / FLOOD_RATE, from = max_u64(f->full_at, now_ns);

    if (from + interval > now_ns + FLOOD_BURST * interval)
        return false;
    f->full_at = from + interval;
    return true;
}

bool flood_take(struct flood *f, const struct flood_kind *what, uint64_t now_ns, uint64_t now_ms)
{
    struct entry *e = find(f, what, now_ns, now_ms);

    if (over(e, now_ns) && !e->count) { /* a new window */
        e->since_ns = now_ns;
        e->since_ms = now_ms;
        e->single = 0;
    }
    if (e != &f->entries[FLOOD_KINDS] && e->single < FLOOD_SINGLE && !e->count && bucket_take(f, now_ns)) {
        e->single++;
        return true;
    }
    if (e->count++ == 0) { /* the window of a sum begins with what it sums up */
        e->since_ns = now_ns;
        e->since_ms = now_ms;
    }
    return false;
}

bool flood_next(struct flood *f, uint64_t now_ns, bool all, struct flood_sum *ret)
{
    for (size_t i = 0; i <= FLOOD_KINDS; i++) {
        struct entry *e = &f->entries[i];

        if (!e->used || !e->count || (!all && !over(e, now_ns)))
            continue;
        *ret = (struct flood_sum){ .what = e->what, .count = e->count, .since_ms = e->since_ms };
        e->count = 0; /* and goes on counting: who did not stop gets no new allowance */
        e->since_ns = now_ns;
        e->single = FLOOD_SINGLE;
        return true;
    }
    return false;
}

uint64_t flood_due(const struct flood *f)
{
    uint64_t due = 0;

    for (size_t i = 0; i <= FLOOD_KINDS; i++)
        if (f->entries[i].used && f->entries[i].count) {
            uint64_t at = f->entries[i].since_ns + FLOOD_WINDOW_NS;

            due = due ? min_u64(due, at) : at;
        }
    return due;
}
