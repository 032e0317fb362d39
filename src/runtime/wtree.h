/* wtree.h - the directories that a WATCH has an eye on, by the kernel's descriptor and by their place in the tree.
 *
 * A place is a parent and a name, so a directory that moves takes everything below it along in one step. Nothing here
 * makes a system call: the tree is what we believe, and watch.c keeps the belief true. */
#pragma once

#include "base/base.h"

#define WTREE_MAX 8192u /* directories of one watch */

/* A directory that is not where it should be: a move that was not told yet has taken it, or one above it, along. */
struct wmissed {
    struct wmissed *next;
    bool announce;
    char name[];
};

struct wnode {
    struct wnode *parent, *child, *next, *prev; /* next, prev: siblings; prev is NULL for the first */
    struct wnode *chain;                        /* of its bucket */
    char *name;                                 /* "" for the root */
    int wd;
    uint32_t round; /* the look around in which it was last seen */
    bool announce;  /* what is found in it is told */
    bool queued;    /* there is something to do */
    bool unread;    /* it is to be read */
    struct wmissed *missed;
    struct wnode *queue_next, *queue_prev;
};

struct wtree {
    struct wnode *root;
    size_t count, missed;
    struct wnode *queue, *queue_end;
    struct wnode *buckets[1024];
};

void wtree_done(struct wtree *t);

struct wnode *wtree_find(const struct wtree *t, int wd);
struct wnode *wtree_child(const struct wnode *parent, const char *name);
struct wnode *wtree_add(struct wtree *t, struct wnode *parent, const char *name, int wd); /* NULL when it is full */
/* False, and nothing done, when `parent` lies below the node: then what we believe is out of date. */
bool wtree_move(struct wnode *n, struct wnode *parent, const char *name);
/* Forgets a directory and all below it; `forget` is told each descriptor and may be NULL. */
void wtree_drop(struct wtree *t, struct wnode *n, void (*forget)(void *arg, int wd), void *arg);
/* Forgets all that were not seen in this round. */
void wtree_sweep(struct wtree *t, uint32_t round, void (*forget)(void *arg, int wd), void *arg);

/* "a/b/name"; with name "" the node's own path, "" for the root. False when it does not fit. */
bool wtree_path(const struct wnode *n, const char *name, char *out, size_t size);

void wtree_queue(struct wtree *t, struct wnode *n, bool announce); /* to be read; once, whoever asks */
struct wnode *wtree_next(struct wtree *t);                         /* takes the first of them; NULL */

bool wtree_miss(struct wtree *t, struct wnode *n, const char *name, bool announce); /* false when it is full */
void wtree_unmiss(struct wtree *t, struct wnode *n, const char *name);
struct wmissed *wtree_missed(struct wtree *t, struct wnode *n); /* takes one, for the caller to free; NULL */
/* It has come to the place where it is: what was not read or missed in it, and below, is queued. */
void wtree_found(struct wtree *t, struct wnode *top);
