/* Open addressing. A removed key leaves its slot marked (a tombstone), so that keys after it are
 * still found; tombstones disappear when the table grows or is cleared, which happens whenever a
 * watch has read all pending kernel events. */
#include "inside/runtime/reported_names.h"

#include "core/base/hash.h"
#include "core/base/mem.h"

#define FREE 0u
#define LEFT 1u

static uint64_t reported_names_key(int wd, const char *name)
{
    uint64_t h = hash_fold(hash_str(HASH_INIT ^ (uint32_t)wd, name));

    return h > LEFT ? h : h + 2;
}

/* The slot of the key, or the free slot that ends the search. */
static size_t reported_names_find_slot(const struct reported_names *t, uint64_t key)
{
    size_t i = key & (t->slots - 1);

    while (t->keys[i] != FREE && t->keys[i] != key)
        i = (i + 1) & (t->slots - 1);
    return i;
}

static void reported_names_insert(struct reported_names *t, uint64_t key)
{
    size_t i = reported_names_find_slot(t, key);

    t->used += t->keys[i] == FREE;
    t->keys[i] = key;
}

static void reported_names_grow(struct reported_names *t)
{
    struct reported_names old = *t;

    t->slots = old.slots ? 2 * old.slots : 64;
    t->used = 0;
    t->keys = mem_alloc(t->slots * sizeof(*t->keys));
    for (size_t i = 0; i < old.slots; i++)
        if (old.keys[i] > LEFT)
            reported_names_insert(t, old.keys[i]);
    free(old.keys);
}

void reported_names_add(struct reported_names *t, int wd, const char *name)
{
    if (2 * (t->used + 1) > t->slots) {
        if (t->used >= REPORTED_NAMES_MAX)
            return;
        reported_names_grow(t);
    }
    reported_names_insert(t, reported_names_key(wd, name));
}

bool reported_names_remove(struct reported_names *t, int wd, const char *name)
{
    size_t i = t->used ? reported_names_find_slot(t, reported_names_key(wd, name)) : 0;

    if (t->used == 0 || t->keys[i] == FREE)
        return false;
    t->keys[i] = LEFT;
    return true;
}

void reported_names_clear(struct reported_names *t)
{
    free(t->keys);
    *t = (struct reported_names){ 0 };
}
