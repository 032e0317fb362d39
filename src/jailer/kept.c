/* A door is a listening socket in STATE/kept/ID. The directory is 0700 and the caller's uid is checked as well, since
 * whoever holds the socket commands the sandbox. Doors of a jailer that died refuse connections; whoever lists them
 * removes those. */
#include "jailer/kept.h"

#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "jailer/jailer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

struct door {
    struct door *next;
    struct kept *k;
    char id[ID_SIZE];
    struct ev_io io;
};

struct kept {
    struct ev *ev;
    char *dir;
    void (*on_visitor)(void *arg, int sock);
    void *arg;
    struct door *doors;
};

int kept_new(struct ev *ev, const char *state_dir, void (*on_visitor)(void *arg, int sock), void *arg,
             struct kept **ret, struct err *err UNUSED)
{
    struct kept *k = mem_new(struct kept);

    k->ev = ev;
    k->dir = str_printf("%s/kept", state_dir);
    k->on_visitor = on_visitor;
    k->arg = arg;
    *ret = k;
    return 0;
}

static int door_address(const char *dir, const char *id, struct sockaddr_un *ret, struct err *err)
{
    *ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
    int n = snprintf(ret->sun_path, sizeof(ret->sun_path), "%s/%s", dir, id);
    if (n < 0 || (size_t)n >= sizeof(ret->sun_path))
        return err_set(err, ERR_INVALID, "the state directory's name is too long for a socket: %s", dir);
    return 0;
}

static void on_knock(void *arg, uint32_t events UNUSED)
{
    struct door *d = arg;
    auto_fd int sock = accept4(d->io.fd, NULL, NULL, SOCK_CLOEXEC);
    struct ucred who;
    socklen_t len = sizeof(who);

    if (sock < 0 || getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0)
        return;
    if (who.uid == geteuid())
        d->k->on_visitor(d->k->arg, take_fd(&sock));
}

int kept_add(struct kept *k, const char *id, struct err *err)
{
    struct sockaddr_un addr;

    if (mkdir(k->dir, 0700) < 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "%s", k->dir);
    if (door_address(k->dir, id, &addr, err) < 0)
        return -1;
    auto_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 || listen(fd, 8) < 0)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_SYS, "door of %s", id);
    struct door *d = mem_new(struct door);
    d->k = k;
    memcpy(d->id, id, sizeof(d->id));
    if (ev_io_add(k->ev, &d->io, fd, EPOLLIN, on_knock, d, err) < 0) {
        free(d);
        return -1;
    }
    (void)take_fd(&fd);
    d->next = k->doors;
    k->doors = d;
    return 0;
}

static void door_free(struct door *d)
{
    struct sockaddr_un addr;

    if (door_address(d->k->dir, d->id, &addr, NULL) == 0)
        (void)unlink(addr.sun_path);
    ev_io_del(d->k->ev, &d->io);
    close(d->io.fd);
    free(d);
}

void kept_remove(struct kept *k, const char *id)
{
    for (struct door **p = &k->doors; *p; p = &(*p)->next)
        if (str_eq((*p)->id, id)) {
            struct door *d = *p;

            *p = d->next;
            door_free(d);
            return;
        }
}

void kept_free(struct kept *k)
{
    if (!k)
        return;
    while (k->doors)
        kept_remove(k, k->doors->id);
    free(k->dir);
    free(k);
}

int jailer_connect_kept(const char *state_dir, const char *id, int *ret_sock, struct err *err)
{
    auto_free char *dir = str_printf("%s/kept", state_dir);
    struct sockaddr_un addr;
    struct ucred who;
    socklen_t len = sizeof(who);

    if (!id_valid(id, "sb"))
        return err_set(err, ERR_INVALID, "'%s' is no sandbox id", id);
    if (door_address(dir, id, &addr, err) < 0)
        return -1;
    auto_fd int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "socket");
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        if (errno == ECONNREFUSED)
            (void)unlink(addr.sun_path); /* its jailer died */
        if (errno == ECONNREFUSED || errno == ENOENT)
            return err_set(err, ERR_MISSING, "no kept sandbox %s", id);
        return err_sys(err, ERR_SYS, "sandbox %s", id);
    }
    /* A state directory in /tmp may be somebody else's work, and what is behind the door hears all that is typed. */
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) < 0 || who.uid != geteuid())
        return err_set(err, ERR_DENIED, "the door of sandbox %s belongs to another user", id);
    *ret_sock = take_fd(&fd);
    return 0;
}
