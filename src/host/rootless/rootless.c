/* With one mapped id there is no second user to isolate: sandboxes run under the caller's own uid,
 * groups cannot be dropped, and the files of the root belong to the sandbox's user (but the mounts
 * are read-only and Landlock applies). Every receipt reports the walls that remain. Refusals of the
 * host are explained here, also for root, because "Operation not permitted" has many different
 * causes and fixes. */
#include "host/rootless/rootless.h"

#include "core/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>

/* NULL: the kind of host is not the cause. */
static const char *rootless_host_kind_fix(enum rootless_host_kind place, bool root)
{
    switch (place) {
    case HOST_KIND_CONTAINER:
        return root ? "root of this container may not make namespaces: start it with --privileged, or run cove on the "
                      "host"
                    : "this container does not allow user namespaces: start it with --security-opt for each of "
                      "seccomp=unconfined, apparmor=unconfined and systempaths=unconfined (Podman: unmask=ALL), or run "
                      "cove on the host";
    case HOST_KIND_POD:
        return root ? "root of this pod may not make namespaces: give its container the securityContext privileged: "
                      "true, or run cove on the node"
                    : "this pod does not allow user namespaces: give its container the securityContext "
                      "seccompProfile.type: Unconfined and procMount: Unmasked, or run cove on the node";
    case HOST_KIND_WSL1:
        return "this is WSL 1, which has no Linux kernel: wsl --set-version DISTRIBUTION 2, in Windows";
    case HOST_KIND_PLAIN:
        break;
    }
    return root ? "root without CAP_SYS_ADMIN may not make namespaces: start cove with all capabilities of root" : NULL;
}

void rootless_explain(const struct rootless_facts *c, int error, struct err *err)
{
    const char *cure = rootless_host_kind_fix(c->host_kind, c->is_root);

    if (!c->is_root && c->unprivileged_userns_clone && c->unprivileged_userns_clone[0] == '0')
        err_set(err, ERR_NO_NAMESPACES,
                "this host lets only root make user namespaces: sysctl -w kernel.unprivileged_userns_clone=1");
    else if (c->max_user_namespaces && c->max_user_namespaces[0] == '0')
        err_set(err, ERR_NO_NAMESPACES, "user namespaces are switched off: sysctl -w user.max_user_namespaces=15000");
    else if (!c->is_root && c->apparmor_restrict && c->apparmor_restrict[0] == '1')
        err_set(err, ERR_NO_NAMESPACES,
                "AppArmor restricts user namespaces here: install the profile deploy/apparmor/cove of the source, or "
                "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0");
    else if (cure)
        err_set(err, ERR_NO_NAMESPACES, "%s", cure);
    else {
        errno = error;
        err_sys(err, ERR_NO_NAMESPACES, "cannot make a user namespace as an unprivileged user");
    }
}

static const char *rootless_read_fact(const char *path, char buf[32])
{
    return fd_get_at(AT_FDCWD, path, buf, 32) > 0 ? buf : NULL;
}

static enum rootless_host_kind rootless_detect_host_kind(void)
{
    char release[128] = "";

    if (getenv("KUBERNETES_SERVICE_HOST") || access("/run/secrets/kubernetes.io", F_OK) == 0)
        return HOST_KIND_POD;
    if (access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0)
        return HOST_KIND_CONTAINER;
    /* WSL 2 kernels end in "-microsoft-standard-WSL2"; WSL 1 reports for example
     * "4.4.0-19041-Microsoft". */
    (void)fd_get_at(AT_FDCWD, "/proc/sys/kernel/osrelease", release, sizeof(release));
    return strstr(release, "-Microsoft") ? HOST_KIND_WSL1 : HOST_KIND_PLAIN;
}

int rootless_explain_refusal(bool root, int error, struct err *err)
{
    char a[32], b[32], c[32];
    struct rootless_facts clues = {
        .max_user_namespaces = rootless_read_fact("/proc/sys/user/max_user_namespaces", a),
        .unprivileged_userns_clone = rootless_read_fact("/proc/sys/kernel/unprivileged_userns_clone", b),
        .apparmor_restrict = rootless_read_fact("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", c),
        .host_kind = rootless_detect_host_kind(),
        .is_root = root,
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
        return rootless_explain_refusal(false, errno, err);
    /* Kernel rule: a process that maps a group without privilege must first give up setgroups. */
    if (fd_put_at(AT_FDCWD, "/proc/self/setgroups", "deny") < 0 && errno != ENOENT)
        return rootless_explain_refusal(false, errno, err);
    snprintf(map, sizeof(map), "0 %u 1", uid);
    if (fd_put_at(AT_FDCWD, "/proc/self/uid_map", map) < 0)
        return rootless_explain_refusal(false, errno, err);
    snprintf(map, sizeof(map), "0 %u 1", gid);
    if (fd_put_at(AT_FDCWD, "/proc/self/gid_map", map) < 0)
        return rootless_explain_refusal(false, errno, err);
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
        return rootless_explain_refusal(false, errno, err);
    return 0;
}
