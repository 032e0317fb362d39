/* pem_watch.h - tells when the files of a certificate have changed, and lets the process sleep until they do. */
#pragma once

#include "core/base/base.h"
#include "core/ev/ev.h"
#include "server/tls/pem.h"

struct pem_watch_entry;

/* on_change comes when the files have changed and then stayed the same for one look, so that a pair that is written one
 * after the other is seen whole. */
struct pem_watch {
    struct ev *ev;
    struct pem_paths paths;
    uint64_t check_ns; /* between looks, while something changes */
    struct ev_timer timer;
    struct ev_io io;
    int fd;                          /* inotify; -1: looks at intervals instead */
    struct pem_watch_entry *entries; /* what is watched, and which names matter there */
    size_t nentries;
    bool is_polling; /* said that the kernel tells nothing here */
    uint64_t last_fingerprint,
        reported_fingerprint; /* marks of the files: at the last look, and when they were last told */
    void (*on_change)(void *arg);
    void *arg;
};
void pem_watch_init(struct pem_watch *w, struct ev *ev, const struct pem_paths *paths, void (*on_change)(void *arg),
                    void *arg);
void pem_watch_mark_read(struct pem_watch *w); /* they are about to be read as they are now */
void pem_watch_done(struct pem_watch *w);      /* nothing when it was never made */
