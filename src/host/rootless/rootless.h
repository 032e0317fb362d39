/* rootless.h - operation without root: a user namespace in which the caller is uid 0. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

/* Moves the calling process into its own user and mount namespace, in which it holds every
 * capability and uid 0 stands for the caller. If the host forbids it, the error names the
 * responsible setting. */
int rootless_enter(struct err *err);

enum rootless_host_kind { HOST_KIND_PLAIN, HOST_KIND_CONTAINER, HOST_KIND_POD, HOST_KIND_WSL1 };

/* Facts that explain why namespaces cannot be made here. The files are given as text; NULL: the
 * file does not exist. */
struct rootless_facts {
    const char *max_user_namespaces;       /* /proc/sys/user/max_user_namespaces */
    const char *unprivileged_userns_clone; /* kernel.unprivileged_userns_clone, Debian only */
    const char *apparmor_restrict;         /* kernel.apparmor_restrict_unprivileged_userns, Ubuntu only */
    enum rootless_host_kind host_kind;
    bool is_root; /* the caller was root, but without its capabilities */
};
void rootless_explain(const struct rootless_facts *clues, int error, struct err *err);
/* Calls rootless_explain with the facts of this host, for a call that failed with `error`. Returns
 * -1. */
int rootless_explain_refusal(bool root, int error, struct err *err);
