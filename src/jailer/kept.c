/* A door is a listening socket in STATE/kept/ID. The directory is 0700 and the jailer checks the caller's uid as well,
 * since whoever holds the socket commands the sandbox. Doors of a jailer that died refuse connections; whoever lists
 * them removes those. */
#include "jailer/kept.h"

#include "base/fd.h"
#include "base/id.h"
#include "base/mem.h"
#include "base/str.h"
#include "jailer/jailer.h"

#include <errno.h>
#include <sys/stat.h>

struct entrance {
    struct entrance *next;
    char id[ID_SIZE];
    struct door door;
};

struct kept {
    struct ev *ev;
    char *dir;
    visitor_fn *on_visitor;
    void *arg;
    struct entrance *entrances;
};

int kept_new(struct ev *ev, const char *state_dir, visitor_fn *on_visitor, void *arg, struct kept **ret,
             struct err *err UNUSED)
{
    struct kept *k = mem_new(struct kept);

    k->ev = ev;
    k->dir = str_printf("%s/kept", state_dir);
    k->on_visitor = on_visitor;
    k->arg = arg;
    *ret = k;
    return 0;
}

int kept_add(struct kept *k, const char *id, struct err *err)
{
    auto_free char *path = str_printf("%s/%s", k->dir, id);

    if (mkdir(k->dir, 0700) < 0 && errno != EEXIST)
        return err_sys(err, ERR_SYS, "%s", k->dir);
    struct entrance *d = mem_new(struct entrance);
    if (door_open(&d->door, k->ev, path, geteuid(), k->on_visitor, k->arg, err) < 0) {
        free(d);
        return err_wrap(err, "door of %s", id);
    }
    memcpy(d->id, id, sizeof(d->id));
    d->next = k->entrances;
    k->entrances = d;
    return 0;
}

void kept_remove(struct kept *k, const char *id)
{
    for (struct entrance **p = &k->entrances; *p; p = &(*p)->next)
        if (str_eq((*p)->id, id)) {
            struct entrance *d = *p;

            *p = d->next;
            door_close(&d->door);
            free(d);
            return;
        }
}

void kept_free(struct kept *k)
{
    if (!k)
        return;
    while (k->entrances)
        kept_remove(k, k->entrances->id);
    free(k->dir);
    free(k);
}

int jailer_connect_kept(const char *state_dir, const char *id, int *ret_sock, struct err *err)
{
    auto_free char *path = str_printf("%s/kept/%s", state_dir, id);
    auto_fd int fd = -1;
    struct err why = { 0 };
    struct ucred who;

    if (!id_valid(id, "sb"))
        return err_set(err, ERR_INVALID, "'%s' is no sandbox id", id);
    if (door_knock(path, &fd, &who, &why) < 0) {
        if (why.id == ERR_MISSING) {
            (void)unlink(path); /* its jailer died */
            return err_set(err, ERR_MISSING, "no kept sandbox %s", id);
        }
        if (err)
            *err = why;
        return err_wrap(err, "sandbox %s", id);
    }
    /* A state directory in /tmp may be somebody else's work, and what is behind the door hears all that is typed. */
    if (who.uid != geteuid())
        return err_set(err, ERR_DENIED, "the door of sandbox %s belongs to another user", id);
    *ret_sock = take_fd(&fd);
    return 0;
}
