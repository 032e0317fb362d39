/* proc_mount.h - the /proc of a sandbox. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

struct proc_mask {
    char name[24]; /* entry of /proc that exists and must be covered */
    bool is_dir;
};

/* Mounts the /proc of this pid namespace over /proc, without the processes of other users and with
 * these entries covered. Allocates nothing. */
int proc_mount(const struct proc_mask *masks, size_t nmasks, struct err *err);
