/* template_root.h - the file system that every sandbox of a template sees: built once, read-only,
 * copied by the kernel.
 *
 * The caller has its own mount and pid namespace. After template_root_build it is in the new root,
 * and no file of the host is reachable by path. The child of each sandbox mounts its private file
 * systems (proc, tmp, workspace, ...) over mount points that are prepared here. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "inside/confine/proc_mount.h"
#include "policy/root_layout.h"

struct template_root {
    int fd;   /* "/" of the template */
    int proc; /* procfs of this pid namespace, for writing id maps */
    struct proc_mask masks[ROOT_MASKS_MAX];
    size_t nmasks;
};

struct template_root_files {
    int runtime; /* becomes /.cove/runtime */
    int kernels; /* directory copied to /.cove/kernels; ignored if not a directory */
};

/* `scratch` is a directory that the caller owns; it is used briefly as a mount point. */
int template_root_build(struct template_root *r, const char *scratch, const struct template_root_files *files,
                        struct err *err);
/* Lets names be resolved by the egress proxy. Call it before the first sandbox is made: the root is
 * writable for a moment. */
int template_root_set_egress(struct template_root *r, struct err *err);
