/* delegate.h - finds a part of the cgroup v2 tree that an unprivileged user owns, so that limits
 * are enforced without root. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "host/isolate/cgroup.h"

enum delegate_method {
    DELEGATE_NONE,          /* nothing available: only rlimits apply */
    DELEGATE_OWN_CGROUP,    /* our cgroup belongs to the user and holds only our processes */
    DELEGATE_PARENT_CGROUP, /* the parent cgroup is delegated to the user and can hold leaves next to us */
    DELEGATE_SYSTEMD_SCOPE, /* the user's systemd can make a scope */
};

/* Detected properties of the host. Tests can supply all of them. */
struct delegate_facts {
    const char *root_controllers; /* controllers of the v2 root; NULL: no v2 */
    bool is_writable;             /* we may move processes here and enable controllers */
    bool is_delegated;            /* systemd marked this cgroup as delegated */
    bool has_only_own_processes;  /* only this jailer, its caller and their children live here */
    const char *own_controllers;  /* cgroup.controllers of our cgroup; NULL: unreadable */
    bool parent_is_delegated, parent_is_writable;
    const char *parent_controllers; /* cgroup.subtree_control of the parent; NULL: unreadable */
    bool has_user_manager;          /* the user has a systemd user manager */
};
/* systemd owns every cgroup that it has not marked as delegated, so unmarked ones are used only if
 * the user has no systemd. */
enum delegate_method delegate_choose_method(const struct delegate_facts *f);

/* Reads the path of the v2 line of /proc/PID/cgroup. False if there is none, or if it is outside
 * the visible tree. */
bool delegate_own_path(const char *text, char *ret, size_t cap);

/* Finds a cgroup and moves this process and its child `spawner` out of the way where needed. `uid`
 * is the caller's uid on the host, never 0. *ret receives the hierarchy for the leaves; on failure
 * it is empty and err is set. */
int delegate_find_cgroup(struct cgroup_hierarchies *ret, uid_t uid, pid_t spawner, struct err *err);
