/* delegate.h - a part of the cgroup v2 tree that a plain user may call their own, so that limits hold without root. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "host/isolate/cgroup.h"

enum delegate_method {
    DELEGATE_NONE,          /* there is nothing to be had: limits stay with rlimits */
    DELEGATE_OWN_CGROUP,    /* the cgroup we live in is ours, and nobody else's */
    DELEGATE_PARENT_CGROUP, /* the one above was given to the user, and has room for others beside us */
    DELEGATE_SYSTEMD_SCOPE, /* the user's systemd can make one */
};

/* What was found out; all of it can be given by a test. */
struct delegate_facts {
    const char *root_controllers; /* controllers of the v2 root, NULL where there is none */
    bool is_writable;             /* we may move processes here and hand controllers down */
    bool is_delegated;            /* systemd says that this cgroup is delegated */
    bool has_only_own_processes;  /* only this jailer and its caller live here */
    const char *own_controllers;  /* cgroup.controllers of it */
    bool parent_is_delegated, parent_is_writable;
    const char *parent_controllers; /* cgroup.subtree_control of the one above: what it gives to those below */
    bool has_user_manager;          /* the user has a systemd of their own */
};
/* systemd owns every cgroup that it has not marked as delegated, so those are used only where it is not. */
enum delegate_method delegate_choose_method(const struct delegate_facts *f);

/* The path of the v2 line of /proc/PID/cgroup; false when there is none, or it lies outside what we can see. */
bool delegate_own_path(const char *text, char *ret, size_t cap);

/* Finds it and moves this process and `spawner`, its child, where they do not stand in its way. `uid` is the caller as
 * the host sees it. *ret is the forest to make leaves in; on failure it is an empty one, and err says why.
 * Never for uid 0. */
int delegate_find_cgroup(struct cgroup_hierarchies *ret, uid_t uid, pid_t spawner, struct err *err);
