/* No state is kept about the other side: every answer holds the current files, however often it is
 * requested, or the error if they cannot be read. */
#include "server/tls/pem_source.h"

#include "server/tls/pem.h"

#include <sys/socket.h>

void pem_source_send(struct pem_source *s)
{
    struct pem p = { 0 };
    struct err err = { 0 };

    pem_watch_mark_read(&s->watch);
    if (pem_read(&s->watch.paths, &p, &err) < 0 || pem_send(s->sock, &p, &err) < 0)
        pem_send_failure(s->sock, &err);
    pem_done(&p);
}

static void pem_source_on_changed(void *arg)
{
    pem_source_send(arg);
}

/* Several pending requests get one answer, which holds the current files. */
static void pem_source_on_request(void *arg, uint32_t events UNUSED)
{
    struct pem_source *s = arg;
    char byte;
    bool asked = false;

    while (recv(s->sock, &byte, 1, MSG_DONTWAIT) > 0)
        asked = true;
    if (asked)
        pem_source_send(s);
}

int pem_source_init(struct pem_source *s, struct ev *ev, const struct pem_paths *paths, int sock, struct err *err)
{
    *s = (struct pem_source){ .sock = sock };
    if (ev_io_add(ev, &s->io, sock, EPOLLIN, pem_source_on_request, s, err) < 0)
        return -1;
    pem_watch_init(&s->watch, ev, paths, pem_source_on_changed, s);
    return 0;
}

void pem_source_done(struct pem_source *s)
{
    if (!s->watch.ev)
        return;
    ev_io_del(s->watch.ev, &s->io);
    pem_watch_done(&s->watch);
}
