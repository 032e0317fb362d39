#include "service/registry.h"

#include "core/base/hash.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/sandbox_internal.h"

#include <sched.h>

#define REGISTRY_BUCKETS 1024u

struct registry {
    struct sandbox *buckets[REGISTRY_BUCKETS];
    size_t count;
    unsigned pinned_per_cpu[64]; /* sandboxes pinned to each CPU */
    void (*on_empty)(void *arg);
    void *on_empty_arg;
};

struct registry *registry_new(void)
{
    return mem_new(struct registry);
}

void registry_free(struct registry *r)
{
    free(r);
}

static size_t registry_bucket(const char *id)
{
    return hash_str(HASH_INIT, id) % REGISTRY_BUCKETS;
}

struct sandbox *registry_find(const struct registry *r, const char *owner, const char *id)
{
    struct sandbox *sb = r->buckets[registry_bucket(id)];

    while (sb && !str_eq(sb->id, id))
        sb = sb->next;
    return sb && (str_eq(owner, STORE_ANY_OWNER) || str_eq(owner, sb->owner)) ? sb : NULL;
}

void registry_add(struct registry *r, struct sandbox *sb)
{
    list_push(&r->buckets[registry_bucket(sb->id)], sb);
    r->count++;
}

void registry_remove(struct registry *r, struct sandbox *sb)
{
    list_remove(&r->buckets[registry_bucket(sb->id)], sb);
    for (unsigned i = 0; i < 64; i++)
        r->pinned_per_cpu[i] -= sb->pinned_cpus >> i & 1;
    if (--r->count == 0 && r->on_empty)
        r->on_empty(r->on_empty_arg);
}

void registry_rename(struct registry *r, struct sandbox *sb, const char *id)
{
    list_remove(&r->buckets[registry_bucket(sb->id)], sb);
    (void)str_copy(sb->id, sizeof(sb->id), id);
    list_push(&r->buckets[registry_bucket(sb->id)], sb);
}

size_t registry_count(const struct registry *r)
{
    return r->count;
}

void registry_set_on_empty(struct registry *r, void (*on_empty)(void *arg), void *arg)
{
    r->on_empty = on_empty;
    r->on_empty_arg = arg;
}

struct sandbox *registry_next(const struct registry *r, const struct sandbox *sb)
{
    struct sandbox *next = sb ? sb->next : NULL;

    for (size_t i = sb ? registry_bucket(sb->id) + 1 : 0; !next && i < REGISTRY_BUCKETS; i++)
        next = r->buckets[i];
    return next;
}

struct sandbox **registry_snapshot(const struct registry *r)
{
    struct sandbox **all = mem_new_array(struct sandbox *, r->count + 1);
    size_t n = 0;

    for (struct sandbox *sb = NULL; (sb = registry_next(r, sb));)
        all[n++] = sb;
    all[n] = NULL;
    return all;
}

uint64_t registry_choose_cpus(const struct registry *r, uint64_t millis, uint64_t within)
{
    uint64_t chosen = 0, wanted = (millis + 999) / 1000;
    cpu_set_t allowed;

    if (sched_getaffinity(0, sizeof(allowed), &allowed) < 0)
        return 0;
    for (; wanted > 0; wanted--) {
        int best = -1;

        for (int i = 0; i < 64; i++) {
            if (!CPU_ISSET((size_t)i, &allowed) || chosen >> i & 1 || (within && !(within >> i & 1)))
                continue;
            if (best < 0 || r->pinned_per_cpu[i] < r->pinned_per_cpu[best])
                best = i;
        }
        if (best < 0)
            break;
        chosen |= 1ull << best;
    }
    return chosen;
}

void registry_pin_cpus(struct registry *r, struct sandbox *sb, uint64_t cpus)
{
    sb->pinned_cpus = cpus;
    for (unsigned i = 0; i < 64; i++)
        r->pinned_per_cpu[i] += cpus >> i & 1;
}
