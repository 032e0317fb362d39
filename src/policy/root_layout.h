/* root_layout.h - the contents of every sandbox's root. Paths have no leading slash; every list
 * ends with NULL. */
#pragma once

#include "core/base/base.h"

#define ROOT_MASKS_MAX 32 /* maximum length of root_proc_masks */

struct root_link {
    const char *path, *target;
};
struct root_device {
    const char *path;
    unsigned major, minor;
};
struct root_text_file {
    const char *path, *text;
};

extern const char *const root_system_dirs[]; /* bind-mounted if directories, copied if symbolic links (merged /usr) */
extern const char *const root_empty_dirs[];  /* in the order in which they can be created */
extern const struct root_link root_links[];
extern const struct root_device root_devices[];
extern const struct root_text_file root_text_files[];
extern const struct root_text_file root_egress_files[]; /* replace those of a sandbox without a network */
/* in /etc of the host: small files are copied, directories are bind-mounted */
extern const char *const root_host_files[];
extern const char *const root_proc_masks[]; /* in /proc: masked in each sandbox */
