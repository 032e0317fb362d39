/* Descriptors are found by a hash, children by a walk over their siblings: moves and removals are rare beside events,
 * and a directory with thousands of directories in it costs whoever made it. */
#include "runtime/wtree.h"

#include "base/mem.h"
#include "base/str.h"

static struct wnode **bucket(struct wtree *t, int wd)
{
    return &t->buckets[(unsigned)wd % ARRAY_LEN(t->buckets)];
}

struct wnode *wtree_find(const struct wtree *t, int wd)
{
    struct wnode *n = t->buckets[(unsigned)wd % ARRAY_LEN(t->buckets)];

    while (n && n->wd != wd)
        n = n->chain;
    return n;
}

struct wnode *wtree_child(const struct wnode *parent, const char *name)
{
    struct wnode *n = parent->child;

    while (n && !str_eq(n->name, name))
        n = n->next;
    return n;
}

static void attach(struct wnode *n, struct wnode *parent)
{
    n->parent = parent;
    n->prev = NULL;
    n->next = parent ? parent->child : NULL;
    if (n->next)
        n->next->prev = n;
    if (parent)
        parent->child = n;
}

static void detach(struct wnode *n)
{
    if (n->prev)
        n->prev->next = n->next;
    else if (n->parent)
        n->parent->child = n->next;
    if (n->next)
        n->next->prev = n->prev;
}

struct wnode *wtree_add(struct wtree *t, struct wnode *parent, const char *name, int wd)
{
    if (t->count == WTREE_MAX)
        return NULL;
    struct wnode *n = mem_new(struct wnode);
    n->name = mem_copy(name, strlen(name) + 1);
    n->wd = wd;
    n->chain = *bucket(t, wd);
    *bucket(t, wd) = n;
    attach(n, parent);
    if (!parent)
        t->root = n;
    t->count++;
    return n;
}

bool wtree_move(struct wnode *n, struct wnode *parent, const char *name)
{
    for (const struct wnode *p = parent; p; p = p->parent)
        if (p == n)
            return false;
    char *copy = mem_copy(name, strlen(name) + 1);
    free(n->name);
    n->name = copy;
    detach(n);
    attach(n, parent);
    return true;
}

static void unqueue(struct wtree *t, struct wnode *n)
{
    if (!n->queued)
        return;
    *(n->queue_prev ? &n->queue_prev->queue_next : &t->queue) = n->queue_next;
    *(n->queue_next ? &n->queue_next->queue_prev : &t->queue_end) = n->queue_prev;
    n->queued = false;
}

struct wmissed *wtree_missed(struct wtree *t, struct wnode *n)
{
    struct wmissed *m = n->missed;

    if (m) {
        n->missed = m->next;
        t->missed--;
    }
    return m;
}

bool wtree_miss(struct wtree *t, struct wnode *n, const char *name, bool announce)
{
    size_t size = strlen(name) + 1;

    if (t->missed == WTREE_MAX)
        return false;
    struct wmissed *m = mem_alloc(sizeof(*m) + size);
    m->next = n->missed;
    m->announce = announce;
    memcpy(m->name, name, size);
    n->missed = m;
    t->missed++;
    return true;
}

void wtree_unmiss(struct wtree *t, struct wnode *n, const char *name)
{
    for (struct wmissed **p = &n->missed; *p; p = &(*p)->next) {
        struct wmissed *m = *p;

        if (!str_eq(m->name, name))
            continue;
        *p = m->next;
        t->missed--;
        free(m);
        return;
    }
}

static void forget_one(struct wtree *t, struct wnode *n)
{
    struct wnode **p = bucket(t, n->wd);

    while (*p != n)
        p = &(*p)->chain;
    *p = n->chain;
    unqueue(t, n);
    detach(n);
    if (t->root == n)
        t->root = NULL;
    t->count--;
    for (struct wmissed *m; (m = wtree_missed(t, n));)
        free(m);
    free(n->name);
    free(n);
}

/* From the leaves upwards and without recursion: how deep it is was decided by others. */
void wtree_drop(struct wtree *t, struct wnode *top, void (*forget)(void *arg, int wd), void *arg)
{
    for (struct wnode *n = top;;) {
        struct wnode *parent = n->parent;
        bool last = n == top && !n->child;

        if (n->child) {
            n = n->child;
            continue;
        }
        if (forget)
            forget(arg, n->wd);
        forget_one(t, n);
        if (last)
            return;
        n = parent;
    }
}

void wtree_sweep(struct wtree *t, uint32_t round, void (*forget)(void *arg, int wd), void *arg)
{
    for (size_t i = 0; i < ARRAY_LEN(t->buckets); i++) {
        struct wnode *n = t->buckets[i];

        while (n) {
            bool stale = n->round != round;

            if (stale)
                wtree_drop(t, n, forget, arg);
            n = stale ? t->buckets[i] : n->chain; /* others of the bucket may have gone with it */
        }
    }
}

void wtree_done(struct wtree *t)
{
    if (t->root)
        wtree_drop(t, t->root, NULL, NULL);
}

bool wtree_path(const struct wnode *n, const char *name, char *out, size_t size)
{
    size_t at = size, len = strlen(name);

    if (len >= size)
        return false;
    out[--at] = '\0';
    at -= len;
    memcpy(out + at, name, len);
    for (; n->parent; n = n->parent) {
        bool slash = out[at] != '\0';

        len = strlen(n->name);
        if (len + slash > at)
            return false;
        if (slash)
            out[--at] = '/';
        at -= len;
        memcpy(out + at, n->name, len);
    }
    memmove(out, out + at, size - at);
    return true;
}

static void queue(struct wtree *t, struct wnode *n)
{
    if (n->queued)
        return;
    n->queued = true;
    n->queue_next = NULL;
    n->queue_prev = t->queue_end;
    *(t->queue_end ? &t->queue_end->queue_next : &t->queue) = n;
    t->queue_end = n;
}

void wtree_queue(struct wtree *t, struct wnode *n, bool announce)
{
    n->announce = announce;
    n->unread = true;
    queue(t, n);
}

/* Without recursion, as above. */
void wtree_found(struct wtree *t, struct wnode *top)
{
    for (struct wnode *n = top; n;) {
        if (n->unread || n->missed)
            queue(t, n);
        if (n->child) {
            n = n->child;
            continue;
        }
        while (n != top && !n->next)
            n = n->parent;
        n = n == top ? NULL : n->next;
    }
}

struct wnode *wtree_next(struct wtree *t)
{
    struct wnode *n = t->queue;

    if (n)
        unqueue(t, n);
    return n;
}
