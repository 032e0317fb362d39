/* pem_source.h - the supervisor's end of a certificate.
 *
 * coved has a user of its own, to whom a key file usually is closed. The supervisor reads for it, and hands over what
 * it read through a socket: when it is asked, and by itself when the files change. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/ev/ev.h"
#include "server/tls/pem_watch.h"

struct pem_source {
    struct pem_watch watch;
    struct ev_io io;
    int sock; /* borrowed */
};
int pem_source_init(struct pem_source *s, struct ev *ev, const struct pem_paths *paths, int sock, struct err *err);
void pem_source_send(struct pem_source *s); /* reads the files, and hands them over */
void pem_source_done(struct pem_source *s);
