/* Descriptors are found by hash, children by linear search over siblings: moves and removals are
 * rare compared with events, and a directory with thousands of subdirectories slows only its own
 * sandbox. */
#include "inside/runtime/watch_tree.h"

#include "core/base/mem.h"
#include "core/base/str.h"

static struct watch_node **watch_tree_bucket(struct watch_tree *t, int wd)
{
    return &t->buckets[(unsigned)wd % ARRAY_LEN(t->buckets)];
}

struct watch_node *watch_tree_find(const struct watch_tree *t, int wd)
{
    struct watch_node *n = t->buckets[(unsigned)wd % ARRAY_LEN(t->buckets)];

    while (n && n->wd != wd)
        n = n->bucket_next;
    return n;
}

struct watch_node *watch_tree_child(const struct watch_node *parent, const char *name)
{
    struct watch_node *n = parent->child;

    while (n && !str_eq(n->name, name))
        n = n->next;
    return n;
}

static void watch_node_attach(struct watch_node *n, struct watch_node *parent)
{
    n->parent = parent;
    n->prev = NULL;
    n->next = parent ? parent->child : NULL;
    if (n->next)
        n->next->prev = n;
    if (parent)
        parent->child = n;
}

static void watch_node_detach(struct watch_node *n)
{
    if (n->prev)
        n->prev->next = n->next;
    else if (n->parent)
        n->parent->child = n->next;
    if (n->next)
        n->next->prev = n->prev;
}

struct watch_node *watch_tree_add(struct watch_tree *t, struct watch_node *parent, const char *name, int wd)
{
    if (t->count == WATCH_TREE_MAX)
        return NULL;
    struct watch_node *n = mem_new(struct watch_node);
    n->name = mem_copy(name, strlen(name) + 1);
    n->wd = wd;
    n->bucket_next = *watch_tree_bucket(t, wd);
    *watch_tree_bucket(t, wd) = n;
    watch_node_attach(n, parent);
    if (!parent)
        t->root = n;
    t->count++;
    return n;
}

bool watch_tree_move(struct watch_node *n, struct watch_node *parent, const char *name)
{
    for (const struct watch_node *p = parent; p; p = p->parent)
        if (p == n)
            return false;
    char *copy = mem_copy(name, strlen(name) + 1);
    free(n->name);
    n->name = copy;
    watch_node_detach(n);
    watch_node_attach(n, parent);
    return true;
}

static void watch_tree_unqueue(struct watch_tree *t, struct watch_node *n)
{
    if (!n->queued)
        return;
    *(n->queue_prev ? &n->queue_prev->queue_next : &t->queue) = n->queue_next;
    *(n->queue_next ? &n->queue_next->queue_prev : &t->queue_end) = n->queue_prev;
    n->queued = false;
}

struct watch_missed_dir *watch_tree_take_missed(struct watch_tree *t, struct watch_node *n)
{
    struct watch_missed_dir *m = n->missed;

    if (m) {
        n->missed = m->next;
        t->missed--;
    }
    return m;
}

bool watch_tree_add_missed(struct watch_tree *t, struct watch_node *n, const char *name, bool announce)
{
    size_t size = strlen(name) + 1;

    if (t->missed == WATCH_TREE_MAX)
        return false;
    struct watch_missed_dir *m = mem_alloc(sizeof(*m) + size);
    m->next = n->missed;
    m->report_entries = announce;
    memcpy(m->name, name, size);
    n->missed = m;
    t->missed++;
    return true;
}

void watch_tree_remove_missed(struct watch_tree *t, struct watch_node *n, const char *name)
{
    for (struct watch_missed_dir **p = &n->missed; *p; p = &(*p)->next) {
        struct watch_missed_dir *m = *p;

        if (!str_eq(m->name, name))
            continue;
        *p = m->next;
        t->missed--;
        free(m);
        return;
    }
}

static void watch_tree_remove_node(struct watch_tree *t, struct watch_node *n)
{
    struct watch_node **p = watch_tree_bucket(t, n->wd);

    while (*p != n)
        p = &(*p)->bucket_next;
    *p = n->bucket_next;
    watch_tree_unqueue(t, n);
    watch_node_detach(n);
    if (t->root == n)
        t->root = NULL;
    t->count--;
    for (struct watch_missed_dir *m; (m = watch_tree_take_missed(t, n));)
        free(m);
    free(n->name);
    free(n);
}

/* From the leaves upwards and without recursion, because the sandbox controls the depth. */
void watch_tree_drop(struct watch_tree *t, struct watch_node *top, void (*forget)(void *arg, int wd), void *arg)
{
    for (struct watch_node *n = top;;) {
        struct watch_node *parent = n->parent;
        bool last = n == top && !n->child;

        if (n->child) {
            n = n->child;
            continue;
        }
        if (forget)
            forget(arg, n->wd);
        watch_tree_remove_node(t, n);
        if (last)
            return;
        n = parent;
    }
}

void watch_tree_drop_stale(struct watch_tree *t, uint32_t round, void (*forget)(void *arg, int wd), void *arg)
{
    for (size_t i = 0; i < ARRAY_LEN(t->buckets); i++) {
        struct watch_node *n = t->buckets[i];

        while (n) {
            bool stale = n->scan_round != round;

            if (stale)
                watch_tree_drop(t, n, forget, arg);
            n = stale ? t->buckets[i] : n->bucket_next; /* other nodes of the bucket may have been dropped with it */
        }
    }
}

void watch_tree_done(struct watch_tree *t)
{
    if (t->root)
        watch_tree_drop(t, t->root, NULL, NULL);
}

bool watch_tree_path(const struct watch_node *n, const char *name, char *out, size_t size)
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

static void watch_tree_enqueue(struct watch_tree *t, struct watch_node *n)
{
    if (n->queued)
        return;
    n->queued = true;
    n->queue_next = NULL;
    n->queue_prev = t->queue_end;
    *(t->queue_end ? &t->queue_end->queue_next : &t->queue) = n;
    t->queue_end = n;
}

void watch_tree_queue_read(struct watch_tree *t, struct watch_node *n, bool announce)
{
    n->report_entries = announce;
    n->unread = true;
    watch_tree_enqueue(t, n);
}

/* Without recursion, for the same reason. */
void watch_tree_requeue_below(struct watch_tree *t, struct watch_node *top)
{
    for (struct watch_node *n = top; n;) {
        if (n->unread || n->missed)
            watch_tree_enqueue(t, n);
        if (n->child) {
            n = n->child;
            continue;
        }
        while (n != top && !n->next)
            n = n->parent;
        n = n == top ? NULL : n->next;
    }
}

struct watch_node *watch_tree_next(struct watch_tree *t)
{
    struct watch_node *n = t->queue;

    if (n)
        watch_tree_unqueue(t, n);
    return n;
}
