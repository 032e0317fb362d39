/* Open addressing. A key that is taken leaves its slot marked, so that others behind it are found; the marks go when
 * the table grows or is cleared, which happens whenever a watch has seen all that the kernel had for it. */
#include "runtime/told.h"

#include "base/mem.h"

#define FREE 0u
#define LEFT 1u

static uint64_t key_of(int wd, const char *name)
{
    uint64_t h = 14695981039346656037ull ^ (uint32_t)wd;

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 1099511628211ull;
    h ^= h >> 29;
    return h > LEFT ? h : h + 2;
}

/* Where it is, or the free slot that ends the search. */
static size_t find(const struct told *t, uint64_t key)
{
    size_t i = key & (t->slots - 1);

    while (t->keys[i] != FREE && t->keys[i] != key)
        i = (i + 1) & (t->slots - 1);
    return i;
}

static void insert(struct told *t, uint64_t key)
{
    size_t i = find(t, key);

    t->used += t->keys[i] == FREE;
    t->keys[i] = key;
}

static void grow(struct told *t)
{
    struct told old = *t;

    t->slots = old.slots ? 2 * old.slots : 64;
    t->used = 0;
    t->keys = mem_alloc(t->slots * sizeof(*t->keys));
    for (size_t i = 0; i < old.slots; i++)
        if (old.keys[i] > LEFT)
            insert(t, old.keys[i]);
    free(old.keys);
}

void told_put(struct told *t, int wd, const char *name)
{
    if (2 * (t->used + 1) > t->slots) {
        if (t->used >= TOLD_MAX)
            return;
        grow(t);
    }
    insert(t, key_of(wd, name));
}

bool told_take(struct told *t, int wd, const char *name)
{
    size_t i = t->used ? find(t, key_of(wd, name)) : 0;

    if (t->used == 0 || t->keys[i] == FREE)
        return false;
    t->keys[i] = LEFT;
    return true;
}

void told_clear(struct told *t)
{
    free(t->keys);
    *t = (struct told){ 0 };
}
