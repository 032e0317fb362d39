/* cgroup v2 allows an unprivileged user to set limits in a subtree that the user owns. A login by
 * ssh or terminal lives in a session scope that belongs to root and may not leave it; the user's
 * systemd can move its processes, so it is asked for a scope. Services and containers may already
 * own their cgroup.
 *
 * A cgroup that enables controllers for its children must not contain processes itself, so the
 * processes of our cgroup are first moved into a leaf named `host`. No cleanup is needed at the
 * end: systemd removes a scope and everything below it when its last process has ended, even if we
 * are killed. */
#include "host/rootless/delegate.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/id.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "host/isolate/cgtext.h"
#include "host/isolate/mountinfo.h"
#include "host/systemd/userbus.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>

#define TEXT_MAX (64 * 1024)
#define MOVED_TRIES 2000 /* tries, STEP_NS apart */
#define STEP_NS 1000000L
#define OLD_S 60 /* seconds; an empty leaf of this age has no owner */
#define HOST_LEAF "host"

static bool delegate_has_controllers(const char *controllers)
{
    return controllers && cgtext_has_word(controllers, "memory") && cgtext_has_word(controllers, "pids");
}

enum delegate_method delegate_choose_method(const struct delegate_facts *f)
{
    bool mine = f->is_writable && f->has_only_own_processes && delegate_has_controllers(f->own_controllers);

    if (!delegate_has_controllers(f->root_controllers))
        return DELEGATE_NONE;
    if (mine && f->is_delegated)
        return DELEGATE_OWN_CGROUP;
    if (f->parent_is_delegated && f->parent_is_writable && delegate_has_controllers(f->parent_controllers))
        return DELEGATE_PARENT_CGROUP;
    if (f->has_user_manager)
        return DELEGATE_SYSTEMD_SCOPE;
    return mine ? DELEGATE_OWN_CGROUP : DELEGATE_NONE;
}

bool delegate_own_path(const char *text, char *ret, size_t cap)
{
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        if (!str_eat(&line, "0::"))
            continue;
        size_t n = strcspn(line, "\n");
        if (line[0] != '/' || str_starts(line, "/..") || n >= cap)
            return false;
        memcpy(ret, line, n);
        ret[n] = '\0';
        return true;
    }
    return false;
}

/* --- detection --- */

struct delegate_location {
    char mount_point[512]; /* path where cgroup2 is mounted */
    int root_fd;           /* directory mount_point; -1: none */
    int own_fd;            /* directory of this process's cgroup; -1: none */
    char own_path[1024];   /* relative to mount_point */
};

static bool delegate_read_own_path(char *ret, size_t cap)
{
    char text[4096];

    return fd_get_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) > 0 && delegate_own_path(text, ret, cap);
}

static bool delegate_open_own_cgroup(struct delegate_location *p)
{
    fd_close(&p->own_fd);
    if (!delegate_read_own_path(p->own_path, sizeof(p->own_path)))
        return false;
    auto_free char *dir = str_printf("%s%s", p->mount_point, p->own_path);
    p->own_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return p->own_fd >= 0;
}

static bool delegate_find_location(struct delegate_location *p)
{
    auto_free char *text = mem_alloc(TEXT_MAX);
    const char *rest = text;
    struct mountinfo m;

    if (fd_get_at(AT_FDCWD, "/proc/self/mountinfo", text, TEXT_MAX) <= 0)
        return false;
    while (mountinfo_next(&rest, &m)) {
        if (!str_eq(m.type, "cgroup2") || !str_eq(m.root, "/"))
            continue;
        (void)str_copy(p->mount_point, sizeof(p->mount_point), m.point);
        p->root_fd = open(p->mount_point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return p->root_fd >= 0 && delegate_open_own_cgroup(p);
    }
    return false;
}

static bool delegate_is_marked(int dir)
{
    char mark = 0;

    return fgetxattr(dir, "user.delegate", &mark, 1) == 1 && mark == '1';
}

/* Checks with the real uid, as the kernel does when a process is moved. */
static bool delegate_is_writable(int dir)
{
    return faccessat(dir, "cgroup.procs", W_OK, 0) == 0 && faccessat(dir, "cgroup.subtree_control", W_OK, 0) == 0 &&
           faccessat(dir, ".", W_OK, 0) == 0;
}

static pid_t delegate_parent_of(pid_t pid)
{
    char path[32], text[512];
    const char *p;
    uint32_t ppid;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    if (fd_get_at(AT_FDCWD, path, text, sizeof(text)) <= 0 || !(p = strrchr(text, ')')) || strlen(p) < 5)
        return 0;
    p += 4; /* ") S " */
    return str_eat_u32(&p, INT32_MAX, &ppid) ? (pid_t)ppid : 0;
}

/* The caller, its other children (the monitor) and our own children may be moved; other processes
 * may not. */
static bool delegate_has_only_own_processes(int dir)
{
    auto_free char *text = mem_alloc(TEXT_MAX);
    const char *p = text;
    pid_t pid, self = getpid(), caller = getppid();

    if (fd_get_at(dir, "cgroup.procs", text, TEXT_MAX) < 0)
        return false;
    while (cgtext_next_pid(&p, &pid)) {
        pid_t above = delegate_parent_of(pid);

        if (pid != self && pid != caller && above != self && above != caller)
            return false;
    }
    return true;
}

/* --- taking a cgroup --- */

static int delegate_move_processes(int dir, const char *leaf)
{
    auto_free char *text = mem_alloc(TEXT_MAX);
    auto_free char *procs = str_printf("%s/cgroup.procs", leaf);
    const char *p = text;
    pid_t pid;
    int moved = 0;

    if (fd_get_at(dir, "cgroup.procs", text, TEXT_MAX) < 0)
        return -1;
    while (cgtext_next_pid(&p, &pid)) {
        char number[16];

        snprintf(number, sizeof(number), "%d", pid);
        if (fd_put_at(dir, procs, number) < 0 && errno != ESRCH)
            return -1;
        moved++;
    }
    return moved;
}

static int delegate_empty_cgroup(int dir, struct err *err)
{
    int left = -1;

    if (mkdirat(dir, HOST_LEAF, 0755) < 0 && errno != EEXIST)
        return err_sys(err, ERR_NO_CGROUP, "cannot make a directory in our cgroup");
    for (int i = 0; i < 10 && left; i++) { /* a process may be created meanwhile */
        left = delegate_move_processes(dir, HOST_LEAF);
        if (left < 0)
            return err_sys(err, ERR_NO_CGROUP, "cannot move processes of our cgroup into a leaf");
    }
    return left == 0 ? 0 : err_set(err, ERR_NO_CGROUP, "our cgroup keeps getting new processes");
}

static int delegate_ask_systemd(struct delegate_location *p, uid_t uid, pid_t spawner, struct err *err)
{
    pid_t pids[] = { getpid(), spawner };
    char id[ID_SIZE], name[ID_SIZE + 16], buf[USERBUS_DIR_MAX], helper[1024], path[64];
    char text[4096];

    id_new("sc", id);
    snprintf(name, sizeof(name), "cove-%s.scope", id);
    if (userbus_start_scope(userbus_runtime_dir(uid, buf), uid, name, pids, spawner > 0 ? 2 : 1, err) < 0)
        return -1;
    snprintf(path, sizeof(path), "/proc/%d/cgroup", spawner > 0 ? spawner : getpid());
    for (int i = 0; i < MOVED_TRIES; i++) { /* the reply means that the scope was queued, not that it exists */
        if (delegate_read_own_path(p->own_path, sizeof(p->own_path)) && str_ends(p->own_path, name) &&
            fd_get_at(AT_FDCWD, path, text, sizeof(text)) > 0 && delegate_own_path(text, helper, sizeof(helper)) &&
            str_ends(helper, name))
            return delegate_open_own_cgroup(p) ? 0 : err_sys(err, ERR_NO_CGROUP, "%s", p->own_path);
        nanosleep(&(struct timespec){ .tv_nsec = STEP_NS }, NULL);
    }
    return err_set(err, ERR_TIMEOUT, "the user's systemd made no scope");
}

struct delegate_old_leaves {
    struct cgroup_hierarchies *cgroups;
    time_t now;
};

/* A leaf is empty only briefly: before its sandbox starts and after it ends. */
static void delegate_remove_old_leaf(void *arg, const char *id, gid_t gid UNUSED)
{
    struct delegate_old_leaves *e = arg;
    struct stat st;

    if (fstatat(e->cgroups->trees[0], id, &st, AT_SYMLINK_NOFOLLOW) == 0 && e->now - st.st_ctime > OLD_S)
        (void)cgroup_remove(e->cgroups, id); /* the kernel refuses while a process lives there */
}

static int delegate_take_cgroup(struct cgroup_hierarchies *f, int dir, bool ours, struct err *err)
{
    if (ours && delegate_empty_cgroup(dir, err) < 0)
        return -1;
    int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (again < 0)
        return err_sys(err, ERR_NO_CGROUP, "cannot open our cgroup");
    if (cgroup_use_dir(f, again, err) < 0)
        return -1;
    cgroup_each_leaf(f, delegate_remove_old_leaf, &(struct delegate_old_leaves){ .cgroups = f, .now = time(NULL) });
    return 0;
}

static int delegate_take_available(struct cgroup_hierarchies *f, struct delegate_location *p, uid_t uid, pid_t spawner,
                                   struct err *err)
{
    char offered[512], here[512], parent[512], buf[USERBUS_DIR_MAX];
    auto_fd int above = openat(p->own_fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct delegate_facts facts = {
        .root_controllers = fd_get_at(p->root_fd, "cgroup.controllers", offered, sizeof(offered)) > 0 ? offered : NULL,
        .is_writable = delegate_is_writable(p->own_fd),
        .is_delegated = delegate_is_marked(p->own_fd),
        .has_only_own_processes = delegate_has_only_own_processes(p->own_fd),
        .own_controllers = fd_get_at(p->own_fd, "cgroup.controllers", here, sizeof(here)) > 0 ? here : NULL,
        .parent_is_delegated = delegate_is_marked(above),
        .parent_is_writable = delegate_is_writable(above),
        .parent_controllers = fd_get_at(above, "cgroup.subtree_control", parent, sizeof(parent)) > 0 ? parent : NULL,
        .has_user_manager = userbus_is_available(userbus_runtime_dir(uid, buf)),
    };

    switch (delegate_choose_method(&facts)) {
    case DELEGATE_OWN_CGROUP:
        return delegate_take_cgroup(f, p->own_fd, true, err);
    case DELEGATE_PARENT_CGROUP:
        return delegate_take_cgroup(f, above, false, err);
    case DELEGATE_SYSTEMD_SCOPE:
        return delegate_ask_systemd(p, uid, spawner, err) < 0 ? -1 : delegate_take_cgroup(f, p->own_fd, true, err);
    case DELEGATE_NONE:
        break;
    }
    return err_set(err, ERR_NO_CGROUP, "no part of the cgroup tree belongs to this user");
}

int delegate_find_cgroup(struct cgroup_hierarchies *ret, uid_t uid, pid_t spawner, struct err *err)
{
    struct delegate_location p = { .root_fd = -1, .own_fd = -1 };
    int bad = -1;

    cgroup_init_none(ret);
    if (uid == 0)
        return err_set(err, ERR_BUG, "root must not use a delegated cgroup");
    if (delegate_find_location(&p))
        bad = delegate_take_available(ret, &p, uid, spawner, err);
    else
        err_set(err, ERR_NO_CGROUP, "this host has no cgroup v2 tree");
    if (bad)
        cgroup_init_none(ret);
    fd_close(&p.root_fd);
    fd_close(&p.own_fd);
    return bad;
}
