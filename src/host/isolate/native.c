/* Why a spawner: clone3 copies the caller's mount namespace, so the caller should have few mounts.
 * The spawner lives in the template's root, which has only those few. It is also PID 1 of a pid
 * namespace that contains all sandboxes of the template, so if it dies for any reason the kernel
 * kills all of them.
 *
 * The user namespace belongs to the template's owner uid, not to root: clone3 is called with that
 * effective uid while SECBIT_NO_SETUID_FIXUP keeps the capabilities.
 *
 * clone3 does not make the network namespace. The child inherits the one its spawner is in, which
 * was made and restricted to loopback before the request, and the spawner leaves it for a new one
 * at once. It belongs to the spawner's user namespace, so no capability that a sandbox could gain
 * in its own user namespace is valid there.
 *
 * Interpreters that join a sandbox enter its network as the owner of its user namespace, so the
 * network of a joinable sandbox must belong to that user namespace: there clone3 makes it and the
 * child sets it up, or with egress the spawner, which enters it for that. Joinable sandboxes are
 * made in advance, so the extra time does not matter.
 *
 * No process of a sandbox ever owns a listener of the egress proxy: the child inherits copies from
 * the spawner and closes them with all other descriptors, before it drops its capabilities. */
#include "host/isolate/native.h"

#include "core/base/fd.h"
#include "core/base/mutate.h"
#include "core/base/str.h"
#include "host/isolate/net.h"
#include "host/isolate/sandbox_child.h"
#include "host/isolate/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define NAMESPACES (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS)

int native_prepare(struct native_template *t, bool rootless, const char *scratch,
                   const struct template_root_files *files, struct err *err)
{
    t->rootless = rootless;
    /* Signals that a parent ignored would be ignored in every sandbox, because dispositions survive
     * fork and exec. */
    for (int sig = 1; sig < NSIG; sig++)
        if (sig != SIGKILL && sig != SIGSTOP)
            signal(sig, SIG_DFL);
    if (template_root_build(&t->root, scratch, files, err) < 0)
        return err_wrap(err, "template root");
    if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
        return err_sys(err, ERR_WALL_MISSING, "secure bits");
    return 0;
}

int native_set_template(struct native_template *t, const struct filter_spec *filter, uid_t owner, bool joinable,
                        bool egress, struct err *err)
{
    t->joinable = joinable;
    t->egress = egress;
    t->owner = owner;
    t->calls = *filter;
    if (filter_build(filter, t->monitor >= 0, t->filter.prog, &t->filter.len, err) < 0)
        return err_wrap(err, "system call filter");
    return egress ? template_root_set_egress(&t->root, err) : 0;
}

static int native_write_id_maps(const struct native_template *t, pid_t pid, uid_t host, struct err *err)
{
    static const char *const files[] = { "uid_map", "gid_map" };
    char path[32], map[96];

    if (t->rootless) /* the spawner is root of a user namespace in which 0 is the caller */
        snprintf(map, sizeof(map), "%u 0 1\n", NATIVE_UID);
    else
        snprintf(map, sizeof(map), "0 %u 1\n%u %u 1\n", NATIVE_UID_IMAGE, NATIVE_UID, host);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        snprintf(path, sizeof(path), "%d/%s", pid, files[i]);
        if (fd_put_at(t->root.proc, path, map) < 0)
            return err_sys(err, ERR_WALL_MISSING, "%s", files[i]);
    }
    return 0;
}

/* EPERM, ENOSPC, EUSERS and EINVAL mean that the host allows no namespaces, or no more of them. */
int native_clone_failed(struct err *err)
{
    bool refused = errno == EPERM || errno == ENOSPC || errno == EUSERS || errno == EINVAL;

    if (errno == EAGAIN || errno == ENOMEM)
        return err_sys(err, ERR_LIMIT, "this host cannot start another process");
    return err_sys(err, refused ? ERR_NO_NAMESPACES : ERR_SYS, "cannot make the namespaces");
}

/* Sets up the network namespace that the caller has just entered. */
int native_setup_netns(const struct native_template *t, struct err *err)
{
    if (!wall_is_mutated("routes") && net_loopback_only(err) < 0)
        return -1;
    /* Ports below 1024 need no privilege in a private network. */
    (void)fd_put_at(t->root.proc, "sys/net/ipv4/ip_unprivileged_port_start", "0");
    /* The next network namespace, which is made from inside this one, gets its own table of TCP
     * connections. Otherwise it would share the host's table, which the kernel scans completely
     * when the namespace ends. */
    (void)fd_put_at(t->root.proc, "sys/net/ipv4/tcp_child_ehash_entries", "512");
    return 0;
}

static int native_make_netns(struct native_template *t, struct err *err)
{
    if (t->net_ready)
        return 0;
    if (wall_is_mutated("network")) {
        t->net_ready = true;
        return 0;
    }
    if (unshare(CLONE_NEWNET) < 0)
        return err_sys(err, errno == EPERM || errno == ENOSPC ? ERR_NO_NAMESPACES : ERR_SYS,
                       "cannot make a network namespace");
    if (native_setup_netns(t, err) < 0)
        return -1;
    t->net_ready = true;
    return 0;
}

int native_prepare_netns(struct native_template *t, struct err *err)
{
    if (native_make_netns(t, err) < 0)
        return -1;
    if (!t->egress || t->joinable || t->listeners.n)
        return 0;
    if (wall_is_mutated("network")) /* never in the network of the host */
        return err_set(err, ERR_NETWORK_UNAVAILABLE, "the sandbox has no network of its own");
    return egress_net_open(&t->listeners, err);
}

/* Makes the listeners of a joinable sandbox: its network belongs to its own user namespace, so it
 * exists only since clone3. The sandbox waits for its id maps meanwhile. */
static int native_open_listeners_in(const struct native_template *t, int pidfd, struct egress_net *ret, struct err *err)
{
    auto_fd int home = openat(t->root.proc, "self/ns/net", O_RDONLY | O_CLOEXEC);

    if (home < 0 || setns(pidfd, CLONE_NEWNET) < 0)
        return err_sys(err, ERR_NETWORK_UNAVAILABLE, "cannot enter the network of the sandbox");
    int made = native_setup_netns(t, err);
    if (made == 0)
        made = egress_net_open(ret, err);
    if (setns(home, CLONE_NEWNET) < 0)
        _exit(125); /* a privileged process must not continue in a sandbox's network */
    return made;
}

int native_new_netns(void)
{
    auto_fd int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);

    if (home < 0 || wall_is_mutated("network") || unshare(CLONE_NEWNET) < 0)
        return -1;
    auto_fd int made = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    if (setns(home, CLONE_NEWNET) < 0)
        _exit(125); /* a privileged process must not continue in a sandbox's network */
    return take_fd(&made);
}

int native_enter_netns(struct native_template *t, int network, struct err *err)
{
    if (setns(network, CLONE_NEWNET) < 0)
        return err_sys(err, ERR_NO_NAMESPACES, "cannot enter the network namespace");
    if (native_setup_netns(t, err) < 0)
        return -1;
    t->net_ready = true;
    return 0;
}

int native_spawn(struct native_template *t, const struct native_spec *spec, struct native_process *ret, struct err *err)
{
    auto_fd int go = eventfd(0, EFD_CLOEXEC);
    auto_fd int pidfd = -1;
    struct sys_clone args = { .flags = NAMESPACES | CLONE_PIDFD, .pidfd = &pidfd, .cgroup = spec->cgroup.v2_dir };
    struct sandbox_child child = { .template = t, .spec = spec, .id_maps_ready = go };
    struct sys_parent_death bond;
    struct egress_net listeners = { .n = 0 };
    uint64_t one = 1;

    if (!t->filter.len)
        return err_set(err, ERR_BUG, "the template has no system call filter");
    if (go < 0)
        return err_sys(err, ERR_SYS, "eventfd");
    if (native_prepare_netns(t, err) < 0)
        return -1;
    if (args.cgroup >= 0)
        args.flags |= CLONE_INTO_CGROUP;
    if (t->joinable && !wall_is_mutated("network"))
        args.flags |= CLONE_NEWNET;
    if (wall_is_mutated("ipc"))
        args.flags &= ~(uint64_t)CLONE_NEWIPC;
    if (wall_is_mutated("uts"))
        args.flags &= ~(uint64_t)CLONE_NEWUTS;
    sys_parent_death_save(&bond);
    if (seteuid(t->owner) < 0)
        return err_sys(err, ERR_SYS, "seteuid");
    pid_t pid = sys_clone3(&args);
    if (pid == 0)
        sandbox_child_main(&child);
    int saved = errno;
    if (seteuid(0) < 0)
        _exit(125); /* not abort(): a traced PID 1 survives it, and it must not continue with the wrong identity */
    sys_parent_death_restore(&bond);
    errno = saved;
    if (pid < 0)
        return native_clone_failed(err);
    if (!t->joinable) { /* the child has used this network, whether or not it succeeds */
        t->net_ready = false;
        listeners = t->listeners;
        t->listeners.n = 0;
    }
    int done = native_write_id_maps(t, pid, spec->host_uid, err);
    if (done == 0 && t->egress && t->joinable)
        done = native_open_listeners_in(t, pidfd, &listeners, err);
    if (done == 0 && write(go, &one, sizeof(one)) != (ssize_t)sizeof(one))
        done = err_sys(err, ERR_SYS, "cannot signal the sandbox that its id maps are written");
    if (done < 0) {
        (void)sys_pidfd_send_signal(pidfd, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        egress_net_close(&listeners);
        return -1;
    }
    *ret = (struct native_process){ .pid = pid, .pidfd = take_fd(&pidfd), .messages = -1, .listeners = listeners };
    return 0;
}

static bool native_path_is_below(const char *path, const char *dir)
{
    size_t n = strlen(dir);

    return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

int native_check_target(const char *dst, struct err *err)
{
    static const char *const taken[] = { "/proc", "/dev", "/.cove", "/tmp", "/sys" };
    size_t n = strlen(dst);

    if (n < 2 || dst[0] != '/' || dst[n - 1] == '/' || strstr(dst, "//") || strstr(dst, "/./") || strstr(dst, "/../") ||
        str_ends(dst, "/.") || str_ends(dst, "/.."))
        return err_set(err, ERR_BIND_TARGET, "'%s' is not a plain absolute path", dst);
    if (str_eq(dst, "/workspace") || str_eq(dst, "/mnt"))
        return err_set(err, ERR_BIND_TARGET, "%s: cannot be a bind target itself; use a path below it%s", dst,
                       dst[1] == 'w' ? ", or --workspace" : "");
    for (size_t i = 0; i < ARRAY_LEN(taken); i++)
        if (native_path_is_below(dst, taken[i]))
            return err_set(err, ERR_BIND_TARGET, "%s is reserved for the sandbox; use another target", taken[i]);
    return 0;
}
