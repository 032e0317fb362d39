/* watch_tree.h - the directories that a WATCH has an eye on, by the kernel's descriptor and by their place in the tree.
 *
 * A place is a parent and a name, so a directory that moves takes everything below it along in one step. Nothing here
 * makes a system call: the tree is what we believe, and watch.c keeps the belief true. */
#pragma once

#include "core/base/base.h"

#define WATCH_TREE_MAX 8192u /* directories of one watch */

/* A directory that is not where it should be: a move that was not told yet has taken it, or one above it, along. */
struct watch_missed_dir {
    struct watch_missed_dir *next;
    bool report_entries;
    char name[];
};

struct watch_node {
    struct watch_node *parent, *child, *next, *prev; /* next, prev: siblings; prev is NULL for the first */
    struct watch_node *bucket_next;                  /* of its bucket */
    char *name;                                      /* "" for the root */
    int wd;
    uint32_t scan_round; /* the look around in which it was last seen */
    bool report_entries; /* what is found in it is told */
    bool queued;         /* there is something to do */
    bool unread;         /* it is to be read */
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
struct watch_node *watch_tree_add(struct watch_tree *t, struct watch_node *parent, const char *name,
                                  int wd); /* NULL when it is full */
/* False, and nothing done, when `parent` lies below the node: then what we believe is out of date. */
bool watch_tree_move(struct watch_node *n, struct watch_node *parent, const char *name);
/* Forgets a directory and all below it; `forget` is told each descriptor and may be NULL. */
void watch_tree_drop(struct watch_tree *t, struct watch_node *n, void (*forget)(void *arg, int wd), void *arg);
/* Forgets all that were not seen in this round. */
void watch_tree_drop_stale(struct watch_tree *t, uint32_t round, void (*forget)(void *arg, int wd), void *arg);

/* "a/b/name"; with name "" the node's own path, "" for the root. False when it does not fit. */
bool watch_tree_path(const struct watch_node *n, const char *name, char *out, size_t size);

void watch_tree_queue_read(struct watch_tree *t, struct watch_node *n,
                           bool announce);                /* to be read; once, whoever asks */
struct watch_node *watch_tree_next(struct watch_tree *t); /* takes the first of them; NULL */

bool watch_tree_add_missed(struct watch_tree *t, struct watch_node *n, const char *name,
                           bool announce); /* false when it is full */
void watch_tree_remove_missed(struct watch_tree *t, struct watch_node *n, const char *name);
struct watch_missed_dir *watch_tree_take_missed(struct watch_tree *t,
                                                struct watch_node *n); /* takes one, for the caller to free; NULL */
/* It has come to the place where it is: what was not read or missed in it, and below, is queued. */
void watch_tree_requeue_below(struct watch_tree *t, struct watch_node *top);
