/* rootless.h - root without being root: a user namespace in which the caller is uid 0. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

/* Moves the calling process into a user and a mount namespace of its own, where it holds every capability and uid 0
 * stands for the caller. When the host forbids it, the message says which setting does. */
int rootless_enter(struct err *err);

enum rootless_host_kind { HOST_KIND_PLAIN, HOST_KIND_CONTAINER, HOST_KIND_POD, HOST_KIND_WSL1 };

/* Why namespaces cannot be made here. Pure: the files are given as text, NULL when they do not exist. */
struct rootless_facts {
    const char *max_user_namespaces;       /* /proc/sys/user/max_user_namespaces */
    const char *unprivileged_userns_clone; /* Debian's own switch */
    const char *apparmor_restrict;         /* Ubuntu's: kernel.apparmor_restrict_unprivileged_userns */
    enum rootless_host_kind host_kind;
    bool is_root; /* it was root who was refused: a root without its capabilities */
};
void rootless_explain(const struct rootless_facts *clues, int error, struct err *err);
/* The same with the clues of this host, for a call that was refused with `error`. Returns -1. */
int rootless_explain_refusal(bool root, int error, struct err *err);
