/* template_root.h - the file system that every sandbox of a template sees: made once, read-only, copied by the kernel.
 *
 * The caller lives in a mount and pid namespace of its own. After template_root_build it stands in the new root and
 * nothing of the host is reachable by path any more. What belongs to one sandbox alone (proc, tmp, workspace, ...) is
 * mounted by its child, over mount points that are left ready here. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "policy/root_layout.h"

struct template_root {
    int fd;                            /* "/" of the template */
    int proc;                          /* procfs of this pid namespace, for writing id maps */
    const char *masks[ROOT_MASKS_MAX]; /* entries of /proc that exist here and must be covered */
    bool mask_is_dir[ROOT_MASKS_MAX];
    size_t nmasks;
};

struct template_root_files {
    int runtime; /* becomes /.cove/runtime */
    int kernels; /* its directories of files are copied to /.cove/kernels; nothing when it is no directory */
};

/* `scratch` is a directory that the caller owns; it serves as a mount point for a moment. */
int template_root_build(struct template_root *r, const char *scratch, const struct template_root_files *files,
                        struct err *err);
