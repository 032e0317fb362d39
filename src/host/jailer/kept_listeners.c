/* A kept sandbox has a listening socket STATE/kept/ID. The directory has mode 0700 and the jailer
 * also checks the uid of the peer, because a connection gives full control over the sandbox.
 * Sockets of a jailer that died refuse connections; the next process that tries to connect removes
 * them. */
#include "host/jailer/kept_listeners.h"

#include "core/base/fd.h"
#include "core/base/id.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "host/jailer/jailer.h"

#include <errno.h>
#include <sys/stat.h>

struct kept_listener {
    struct kept_listener *next;
    char id[ID_SIZE];
    struct unix_listener listener;
};

struct kept_listeners {
    struct ev *ev;
    char *dir;
    unix_connection_fn *on_connection;
    void *arg;
    struct kept_listener *first;
};

int kept_listeners_new(struct ev *ev, const char *state_dir, unix_connection_fn *on_visitor, void *arg,
                       struct kept_listeners **ret, struct err *err UNUSED)
{
    struct kept_listeners *k = mem_new(struct kept_listeners);

    k->ev = ev;
    k->dir = str_printf("%s/kept", state_dir);
    k->on_connection = on_visitor;
    k->arg = arg;
    *ret = k;
    return 0;
}

int kept_listeners_add(struct kept_listeners *k, const char *id, struct err *err)
{
    auto_free char *path = str_printf("%s/%s", k->dir, id);

    if (mkdir(k->dir, 0700) < 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "%s", k->dir);
    struct kept_listener *d = mem_new(struct kept_listener);
    if (unix_listener_open(&d->listener, k->ev, path, geteuid(), k->on_connection, k->arg, err) < 0) {
        free(d);
        return err_wrap(err, "socket of sandbox %s", id);
    }
    memcpy(d->id, id, sizeof(d->id));
    d->next = k->first;
    k->first = d;
    return 0;
}

void kept_listeners_remove(struct kept_listeners *k, const char *id)
{
    for (struct kept_listener **p = &k->first; *p; p = &(*p)->next)
        if (str_eq((*p)->id, id)) {
            struct kept_listener *d = *p;

            *p = d->next;
            unix_listener_close(&d->listener);
            free(d);
            return;
        }
}

void kept_listeners_free(struct kept_listeners *k)
{
    if (!k)
        return;
    while (k->first)
        kept_listeners_remove(k, k->first->id);
    free(k->dir);
    free(k);
}

int jailer_connect_kept(const char *state_dir, const char *id, int *ret_sock, struct err *err)
{
    auto_free char *path = str_printf("%s/kept/%s", state_dir, id);
    auto_fd int fd = -1;
    struct err why = { 0 };
    struct ucred peer;

    if (!id_valid(id, "sb"))
        return err_set(err, ERR_INVALID, "'%s' is not a sandbox id", id);
    if (unix_connect(path, &fd, &peer, &why) < 0) {
        if (why.id == ERR_MISSING) {
            (void)unlink(path); /* its jailer died */
            return err_set(err, ERR_MISSING, "no kept sandbox %s", id);
        }
        if (err)
            *err = why;
        return err_wrap(err, "sandbox %s", id);
    }
    /* A state directory in /tmp may be made by another user, whose listener would receive all input
     * of the sandbox. */
    if (peer.uid != geteuid())
        return err_set(err, ERR_DENIED, "the socket of sandbox %s belongs to another user; use another state directory",
                       id);
    *ret_sock = take_fd(&fd);
    return 0;
}
