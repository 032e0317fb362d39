/* An entry lives from its first refusal to the end of its window; then its slot can be reused. The
 * last entry of the table is shared by all refusals that find no slot, and has an empty key. */
#include "server/audit/refusal_aggregator.h"

#include "core/base/mem.h"

#include <stdio.h>

struct refusal_entry {
    bool occupied;
    uint64_t hash;
    uint64_t since_ns, since_ms;
    unsigned recorded;
    uint64_t count;
    struct refusal_key key;
};

struct refusal_aggregator {
    struct refusal_entry entries[REFUSAL_KEYS_MAX + 1]; /* the last entry counts refusals without a slot */
    uint64_t full_at;                                   /* of the token bucket (GCRA) */
};

struct refusal_aggregator *refusal_aggregator_new(void)
{
    return mem_new(struct refusal_aggregator);
}

void refusal_aggregator_free(struct refusal_aggregator *f)
{
    free(f);
}

static uint64_t refusal_hash_mix(uint64_t h, const char *text)
{
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 0x100000001b3ull;
    return (h ^ 0xff) * 0x100000001b3ull;
}

static uint64_t refusal_key_hash(const struct refusal_key *k)
{
    uint64_t h = 0xcbf29ce484222325ull ^ (unsigned)k->status;

    h = refusal_hash_mix(refusal_hash_mix(refusal_hash_mix(refusal_hash_mix(h, k->tenant), k->kind), k->actor),
                         k->user);
    return refusal_hash_mix(refusal_hash_mix(refusal_hash_mix(h, k->address), k->action), k->error);
}

static bool refusal_key_equal(const struct refusal_key *a, const struct refusal_key *b)
{
    return a->status == b->status && !strcmp(a->actor, b->actor) && !strcmp(a->user, b->user) &&
           !strcmp(a->address, b->address) && !strcmp(a->action, b->action) && !strcmp(a->error, b->error) &&
           !strcmp(a->tenant, b->tenant) && !strcmp(a->kind, b->kind);
}

static bool refusal_window_is_over(const struct refusal_entry *e, uint64_t now_ns)
{
    return now_ns >= e->since_ns + REFUSAL_WINDOW_NS;
}

static struct refusal_entry *refusal_aggregator_find(struct refusal_aggregator *f, const struct refusal_key *what,
                                                     uint64_t now_ns, uint64_t now_ms)
{
    uint64_t hash = refusal_key_hash(what);
    struct refusal_entry *free_one = NULL;

    for (size_t i = 0; i < REFUSAL_KEYS_MAX; i++) {
        struct refusal_entry *e = &f->entries[i];

        if (e->occupied && e->hash == hash && refusal_key_equal(&e->key, what))
            return e;
        if (!free_one && (!e->occupied || (refusal_window_is_over(e, now_ns) && !e->count)))
            free_one = e;
    }
    struct refusal_entry *e = free_one ? free_one : &f->entries[REFUSAL_KEYS_MAX];
    if (free_one)
        *e = (struct refusal_entry){
            .occupied = true, .hash = hash, .since_ns = now_ns, .since_ms = now_ms, .key = *what
        };
    else if (!e->occupied)
        *e = (struct refusal_entry){ .occupied = true,
                                     .since_ns = now_ns,
                                     .since_ms = now_ms,
                                     .key = { .kind = "many", .action = "request.refuse" } };
    return e;
}

static bool refusal_aggregator_take_token(struct refusal_aggregator *f, uint64_t now_ns)
{
    uint64_t interval = NS_PER_S / REFUSAL_RATE, from = max_u64(f->full_at, now_ns);

    if (from + interval > now_ns + REFUSAL_BURST * interval)
        return false;
    f->full_at = from + interval;
    return true;
}

bool refusal_aggregator_admit(struct refusal_aggregator *f, const struct refusal_key *what, uint64_t now_ns,
                              uint64_t now_ms)
{
    struct refusal_entry *e = refusal_aggregator_find(f, what, now_ns, now_ms);

    if (refusal_window_is_over(e, now_ns) && !e->count) { /* a new window */
        e->since_ns = now_ns;
        e->since_ms = now_ms;
        e->recorded = 0;
    }
    if (e != &f->entries[REFUSAL_KEYS_MAX] && e->recorded < REFUSAL_RECORDED_MAX && !e->count &&
        refusal_aggregator_take_token(f, now_ns)) {
        e->recorded++;
        return true;
    }
    if (e->count++ == 0) { /* the window of a sum begins with its first refusal */
        e->since_ns = now_ns;
        e->since_ms = now_ms;
    }
    return false;
}

bool refusal_aggregator_next(struct refusal_aggregator *f, uint64_t now_ns, bool all, struct refusal_summary *ret)
{
    for (size_t i = 0; i <= REFUSAL_KEYS_MAX; i++) {
        struct refusal_entry *e = &f->entries[i];

        if (!e->occupied || !e->count || (!all && !refusal_window_is_over(e, now_ns)))
            continue;
        *ret = (struct refusal_summary){ .key = e->key, .count = e->count, .since_ms = e->since_ms };
        e->count = 0; /* counting continues: a client that did not stop gets no new records */
        e->since_ns = now_ns;
        e->recorded = REFUSAL_RECORDED_MAX;
        return true;
    }
    return false;
}

uint64_t refusal_aggregator_due_ns(const struct refusal_aggregator *f)
{
    uint64_t due = 0;

    for (size_t i = 0; i <= REFUSAL_KEYS_MAX; i++)
        if (f->entries[i].occupied && f->entries[i].count) {
            uint64_t at = f->entries[i].since_ns + REFUSAL_WINDOW_NS;

            due = due ? min_u64(due, at) : at;
        }
    return due;
}
