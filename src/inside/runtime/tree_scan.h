/* tree_scan.h - iterates over a tree, one entry per call, without following links or leaving the
 * mount. */
#pragma once

#include "core/base/buf.h"
#include "core/wire/rt.h"

#include <dirent.h>
#include <sys/stat.h>

struct tree_scan {
    int root;
    DIR *dir;                 /* being read; NULL between directories */
    char prefix[RT_PATH_MAX]; /* its path below the root, "" for the root itself */
    struct buf pending;       /* paths of unread directories, each with its NUL; taken from the end */
    uint64_t skipped;         /* names that are too long, directories that could not be opened */
};

struct tree_scan_item {
    char path[RT_PATH_MAX]; /* relative to the root */
    int dirfd;              /* directory that contains it; valid until the next call */
    const char *name;       /* in that directory; points into path */
    struct stat st;
};

void tree_scan_init(struct tree_scan *s, int root); /* takes the descriptor of the top directory */
void tree_scan_done(struct tree_scan *s);
bool tree_scan_next(struct tree_scan *s, struct tree_scan_item *ret); /* false at the end */
