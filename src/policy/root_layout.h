/* root_layout.h - what the root of every sandbox is made of. Paths are without a leading slash; every list ends with
 * NULL. */
#pragma once

#include "core/base/base.h"

#define ROOT_MASKS_MAX 32 /* no list of root_proc_masks is longer */

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

extern const char *const root_system_dirs[]; /* bound where they are real, copied where they are links (merged /usr) */
extern const char *const root_empty_dirs[];  /* in the order in which they can be made */
extern const struct root_link root_links[];
extern const struct root_device root_devices[];
extern const struct root_text_file root_text_files[];
extern const char *const root_host_files[]; /* of its /etc: copied when they are small files, bound when directories */
extern const char *const root_proc_masks[]; /* of /proc: covered in each sandbox */
