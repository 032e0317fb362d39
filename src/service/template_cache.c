/* A fixed number of entries, replaced in turn: only a handful of templates are used often.
 *
 * 1. A row that was requested from the store before a change is not cached after it, however late
 *    the answer arrives: each lookup records the number of changes. */
#include "service/template_cache.h"

#include "core/base/clock.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#define TEMPLATE_CACHE_ENTRIES 16u
#define TEMPLATE_CACHE_TTL_NS (1 * NS_PER_S) /* another process may write to the same store */

struct template_cache_entry {
    struct store_template row; /* spec_json NULL: empty */
    uint64_t cached_ns;
};

struct template_cache_lookup {
    struct template_cache_lookup *next, **link;
    struct template_cache *cache; /* NULL: the cache was freed */
    uint64_t changes, now_ns;
    store_template_fn *done;
    void *arg;
};

struct template_cache {
    struct store *store;
    uint64_t changes;
    struct template_cache_lookup *lookups;
    struct template_cache_entry entries[TEMPLATE_CACHE_ENTRIES];
    size_t next_entry;
};

struct template_cache *template_cache_new(struct store *st)
{
    struct template_cache *s = mem_new(struct template_cache);

    s->store = st;
    return s;
}

static void template_cache_clear_entry(struct template_cache_entry *p)
{
    free(p->row.spec_json);
    *p = (struct template_cache_entry){ 0 };
}

void template_cache_free(struct template_cache *s)
{
    if (!s)
        return;
    for (struct template_cache_lookup *q = s->lookups; q; q = q->next)
        q->cache = NULL;
    for (size_t i = 0; i < TEMPLATE_CACHE_ENTRIES; i++)
        template_cache_clear_entry(&s->entries[i]);
    free(s);
}

static struct template_cache_entry *template_cache_find(struct template_cache *s, const char *name)
{
    for (size_t i = 0; i < TEMPLATE_CACHE_ENTRIES; i++)
        if (s->entries[i].row.spec_json && str_eq(s->entries[i].row.name, name))
            return &s->entries[i];
    return NULL;
}

static void template_cache_store(struct template_cache *s, const struct store_template *row, uint64_t now_ns)
{
    struct template_cache_entry *p = template_cache_find(s, row->name);

    if (!p)
        p = &s->entries[s->next_entry++ % TEMPLATE_CACHE_ENTRIES];
    template_cache_clear_entry(p);
    p->row = *row;
    p->row.spec_json = str_dup(row->spec_json);
    p->cached_ns = now_ns;
}

static void template_cache_on_row(void *arg, const struct err *err, const struct store_template *row)
{
    auto_free struct template_cache_lookup *q = arg;
    struct template_cache *s = q->cache;

    if (s) {
        linked_remove(q);
        if (!err && q->changes == s->changes)
            template_cache_store(s, row, q->now_ns);
    }
    q->done(q->arg, err, row);
}

void template_cache_get(struct template_cache *s, const char *name, uint64_t now_ns, store_template_fn *done, void *arg)
{
    const struct template_cache_entry *p = template_cache_find(s, name);

    if (p && now_ns - p->cached_ns < TEMPLATE_CACHE_TTL_NS) {
        done(arg, NULL, &p->row);
        return;
    }
    struct template_cache_lookup *q = mem_new(struct template_cache_lookup);
    *q = (struct template_cache_lookup){
        .cache = s, .changes = s->changes, .now_ns = now_ns, .done = done, .arg = arg
    };
    linked_push(&s->lookups, q);
    template_get(s->store, name, template_cache_on_row, q);
}

void template_cache_invalidate(struct template_cache *s, const char *name)
{
    struct template_cache_entry *p = template_cache_find(s, name);

    s->changes++;
    if (p)
        template_cache_clear_entry(p);
}
