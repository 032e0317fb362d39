/* pem_source.h - the supervisor's end of the certificate transfer.
 *
 * coved runs as its own user, which usually may not read a key file. The supervisor reads the files
 * and sends them through a socket: on request, and on its own when the files change. */
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
void pem_source_send(struct pem_source *s); /* reads the files and sends them */
void pem_source_done(struct pem_source *s);
