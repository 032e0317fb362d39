/* With one id mapped there is no second user to hide behind: sandboxes run under the caller's own uid, groups cannot be
 * dropped, and files that the root is made of belong to the sandbox's user (the mounts are read-only and Landlock
 * stands). What stays is said in every receipt; what the host refuses is explained here, because "Operation not
 * permitted" has four different cures. */
#include "isolate/rootless.h"

#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>

void rootless_explain(const struct rootless_clues *c, int error, struct err *err)
{
    if (c->unprivileged_userns_clone && c->unprivileged_userns_clone[0] == '0')
        err_set(err, ERR_NO_NAMESPACES,
                "this host lets only root make user namespaces: sysctl -w kernel.unprivileged_userns_clone=1");
    else if (c->max_user_namespaces && c->max_user_namespaces[0] == '0')
        err_set(err, ERR_NO_NAMESPACES, "user namespaces are switched off: sysctl -w user.max_user_namespaces=15000");
    else if (c->apparmor_restrict && c->apparmor_restrict[0] == '1')
        err_set(err, ERR_NO_NAMESPACES,
                "AppArmor restricts user namespaces here: install an AppArmor profile for cove that allows userns, or "
                "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
    else if (c->container)
        err_set(err, ERR_NO_NAMESPACES,
                "this container does not allow user namespaces: start it with --security-opt seccomp=unconfined "
                "(Docker, Podman), or run cove on the host");
    else {
        errno = error;
        err_sys(err, ERR_NO_NAMESPACES, "make a user namespace as a plain user");
    }
}

static const char *read_clue(const char *path, char buf[32])
{
    return fd_get_at(AT_FDCWD, path, buf, 32) > 0 ? buf : NULL;
}

static int refused(int error, struct err *err)
{
    char a[32], b[32], c[32];
    struct rootless_clues clues = {
        .max_user_namespaces = read_clue("/proc/sys/user/max_user_namespaces", a),
        .unprivileged_userns_clone = read_clue("/proc/sys/kernel/unprivileged_userns_clone", b),
        .apparmor_restrict = read_clue("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", c),
        .container = access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
                     getenv("KUBERNETES_SERVICE_HOST"),
    };

    rootless_explain(&clues, error, err);
    return -1;
}

int rootless_enter(struct err *err)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    char map[32];

    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return refused(errno, err);
    /* A kernel rule: whoever maps a group without privilege gives up changing groups. */
    if (fd_put_at(AT_FDCWD, "/proc/self/setgroups", "deny") < 0 && errno != ENOENT)
        return refused(errno, err);
    snprintf(map, sizeof(map), "0 %u 1", uid);
    if (fd_put_at(AT_FDCWD, "/proc/self/uid_map", map) < 0)
        return refused(errno, err);
    snprintf(map, sizeof(map), "0 %u 1", gid);
    if (fd_put_at(AT_FDCWD, "/proc/self/gid_map", map) < 0)
        return refused(errno, err);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return refused(errno, err);
    return 0;
}
