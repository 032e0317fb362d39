/* watch_tree.h - the directories of a WATCH, by watch descriptor and by their place in the tree.
 *
 * A place is a parent and a name, so a directory that moves takes everything below it along in one
 * step. Nothing here makes a system call: the tree is a model that watch.c keeps up to date. */
#pragma once

#include "core/base/base.h"

#define WATCH_TREE_MAX 8192u /* directories of one watch */

/* A directory that was not found in its place: a move that is not reported yet has taken it, or one
 * above it, away. */
struct watch_missed_dir {
    struct watch_missed_dir *next;
    bool report_entries;
    char name[];
};

struct watch_node {
    struct watch_node *parent, *child, *next, *prev; /* next, prev: siblings; prev is NULL for the first */
    struct watch_node *bucket_next;                  /* next node of its bucket */
    char *name;                                      /* "" for the root */
    int wd;
    uint32_t scan_round; /* scan in which it was last seen */
    bool report_entries; /* report entries found when it is read */
    bool queued;         /* it is in the queue */
    bool unread;         /* it must be read */
    struct watch_missed_dir *missed;
    struct watch_node *queue_next, *queue_prev;
};

struct watch_tree {
    struct watch_node *root;
    size_t count, missed;
    struct watch_node *queue, *queue_end;
    struct watch_node *buckets[1024];
};

void watch_tree_done(struct watch_tree *t);

struct watch_node *watch_tree_find(const struct watch_tree *t, int wd);
struct watch_node *watch_tree_child(const struct watch_node *parent, const char *name);
/* Returns NULL if the tree is full. */
struct watch_node *watch_tree_add(struct watch_tree *t, struct watch_node *parent, const char *name, int wd);
/* False, without a change, if `parent` is below the node: the model is then out of date. */
bool watch_tree_move(struct watch_node *n, struct watch_node *parent, const char *name);
/* Drops a directory and everything below it; calls `forget` with each descriptor, unless it is
 * NULL. */
void watch_tree_drop(struct watch_tree *t, struct watch_node *n, void (*forget)(void *arg, int wd), void *arg);
/* Drops all directories not seen in this scan. */
void watch_tree_drop_stale(struct watch_tree *t, uint32_t round, void (*forget)(void *arg, int wd), void *arg);

/* Writes "a/b/name"; with name "" the node's own path, "" for the root. False if it does not
 * fit. */
bool watch_tree_path(const struct watch_node *n, const char *name, char *out, size_t size);

/* Queues the directory for reading, at most once. */
void watch_tree_queue_read(struct watch_tree *t, struct watch_node *n, bool announce);
struct watch_node *watch_tree_next(struct watch_tree *t); /* takes the first queued node; NULL: none */

/* False if the tree is full. */
bool watch_tree_add_missed(struct watch_tree *t, struct watch_node *n, const char *name, bool announce);
void watch_tree_remove_missed(struct watch_tree *t, struct watch_node *n, const char *name);
/* Takes one missed directory, which the caller frees; NULL: none. */
struct watch_missed_dir *watch_tree_take_missed(struct watch_tree *t, struct watch_node *n);
/* Called after a node reached its new place: queues all nodes from `top` down that are unread or
 * have missed directories. */
void watch_tree_requeue_below(struct watch_tree *t, struct watch_node *top);
