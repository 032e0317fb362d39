/* pem_watch.h - reports changes of certificate files without waking the process up otherwise. */
#pragma once

#include "core/base/base.h"
#include "core/ev/ev.h"
#include "server/tls/pem.h"

struct pem_watch_entry;

/* on_change is called after the files have changed and were then unchanged for one check interval
 * (debounce), so that a certificate and a key that are written one after the other are seen
 * together. */
struct pem_watch {
    struct ev *ev;
    struct pem_paths paths;
    uint64_t check_ns; /* interval of checks while something changes */
    struct ev_timer timer;
    struct ev_io io;
    int fd;                          /* inotify descriptor; -1: polling */
    struct pem_watch_entry *entries; /* watched paths, and the names that matter there */
    size_t nentries;
    bool is_polling; /* the fallback to polling was logged */
    uint64_t last_fingerprint,
        /* Fingerprints of the files: at the last check, and when a change was last reported. */
        reported_fingerprint;
    void (*on_change)(void *arg);
    void *arg;
};
void pem_watch_init(struct pem_watch *w, struct ev *ev, const struct pem_paths *paths, void (*on_change)(void *arg),
                    void *arg);
void pem_watch_mark_read(struct pem_watch *w); /* call before the files are read: their current state is not reported */
void pem_watch_done(struct pem_watch *w);      /* does nothing if it was never initialized */
