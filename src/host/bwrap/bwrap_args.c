/* The child has mounted everything but the binds, read-only where it must be, so the tree is bound
 * as it is: `--dev-bind / /`. Bubblewrap can limit the bytes of a tmpfs, but not its
 * files; and its /proc would show PID 1 and what the policy masks. The runtime mounts /proc, and
 * attaches the binds at the paths that follow the id.
 *
 * The network namespace is the one that the child is in: it has loopback and no other route, and it
 * does not belong to the user namespace that Bubblewrap makes, so no capability there is valid in
 * it. */
#include "host/bwrap/bwrap_args.h"

#include "core/base/mutate.h"

#include <stdio.h>

static void bwrap_args_add(struct bwrap_args *a, const char *arg)
{
    if (a->n < BWRAP_ARGS_MAX)
        a->argv[a->n++] = arg;
}

void bwrap_args_build(struct bwrap_args *a, const struct native_spec *spec)
{
    static const char *const namespaces[] = { "--unshare-user", "--unshare-pid" };
    /* For the runtime, which mounts, locks the securebits, and then drops them. */
    static const char *const capabilities[] = { "CAP_SYS_ADMIN", "CAP_SETPCAP" };

    a->n = 0;
    snprintf(a->uid, sizeof(a->uid), "%u", NATIVE_UID);
    bwrap_args_add(a, "bwrap");
    for (size_t i = 0; i < ARRAY_LEN(namespaces); i++)
        bwrap_args_add(a, namespaces[i]);
    if (!wall_is_mutated("cgroup-namespace"))
        bwrap_args_add(a, "--unshare-cgroup");
    if (!wall_is_mutated("ipc"))
        bwrap_args_add(a, "--unshare-ipc");
    if (!wall_is_mutated("uts")) {
        bwrap_args_add(a, "--unshare-uts");
        bwrap_args_add(a, "--hostname");
        bwrap_args_add(a, spec->hostname);
    }
    bwrap_args_add(a, "--uid");
    bwrap_args_add(a, a->uid);
    bwrap_args_add(a, "--gid");
    bwrap_args_add(a, a->uid);
    bwrap_args_add(a, "--cap-drop");
    bwrap_args_add(a, "ALL");
    for (size_t i = 0; i < ARRAY_LEN(capabilities); i++) {
        bwrap_args_add(a, "--cap-add");
        bwrap_args_add(a, capabilities[i]);
    }
    bwrap_args_add(a, "--die-with-parent");
    bwrap_args_add(a, "--as-pid-1");
    bwrap_args_add(a, "--dev-bind");
    bwrap_args_add(a, "/");
    bwrap_args_add(a, "/");
    bwrap_args_add(a, "--chdir");
    bwrap_args_add(a, "/");
    bwrap_args_add(a, "/.cove/runtime");
    bwrap_args_add(a, spec->id);
    for (size_t i = 0; i < spec->nmounts; i++)
        if (spec->mounts[i].kind == NATIVE_BIND)
            bwrap_args_add(a, spec->mounts[i].dst);
    a->argv[a->n] = NULL;
}
