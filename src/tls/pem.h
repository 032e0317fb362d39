/* pem.h - certificate and key as they come from files: read, watched, and passed from the process that may read them
 * to the one that needs them.
 *
 * coved has a user of its own, to whom a key file usually is closed. The supervisor reads for it, and hands over what
 * it read through a socket: at the start, when it is asked, and when the files change. Needs no cryptography. */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "base/err.h"
#include "ev/ev.h"

#define PEM_BYTES_MAX (1024 * 1024) /* of one file */

enum pem_part { PEM_CERTIFICATE, PEM_KEY, PEM_CLIENT_CA, PEM_PARTS };

struct pem {
    struct buf part[PEM_PARTS]; /* without bytes: there is none */
};
void pem_done(struct pem *p); /* overwrites the key */

struct pem_paths {
    const char *part[PEM_PARTS]; /* "" or NULL: none */
};

int pem_read(const struct pem_paths *paths, struct pem *ret, struct err *err);

/* Over a SEQPACKET socket. */
int pem_ask(int sock, struct err *err);
int pem_send(int sock, const struct pem *p, struct err *err);
void pem_send_failure(int sock, const struct err *why);
/* What pem_send sent, or, as an error, what pem_send_failure did. ERR_BUSY: nothing is there yet. */
int pem_recv(int sock, struct pem *ret, struct err *err);

/* Looks after the files every few seconds, by what they are and not by their names: links may lead elsewhere at any
 * time. on_change comes when they have changed and then stayed the same for one look, so that a pair that is written
 * one after the other is seen whole. */
struct pem_watch {
    struct ev *ev;
    struct pem_paths paths;
    struct ev_timer timer;
    uint64_t seen, settled; /* marks of their state: at the last look, and when it was last told */
    void (*on_change)(void *arg);
    void *arg;
};
void pem_watch_init(struct pem_watch *w, struct ev *ev, const struct pem_paths *paths, void (*on_change)(void *arg),
                    void *arg);
void pem_watch_note(struct pem_watch *w); /* they are about to be read as they are now */
void pem_watch_done(struct pem_watch *w);

/* The supervisor's end: answers who asks, and tells of changes by itself. */
struct pem_source {
    struct pem_watch watch;
    struct ev_io io;
    int sock; /* borrowed */
};
int pem_source_init(struct pem_source *s, struct ev *ev, const struct pem_paths *paths, int sock, struct err *err);
void pem_source_tell(struct pem_source *s); /* reads the files, and hands them over */
void pem_source_done(struct pem_source *s);
