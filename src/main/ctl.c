/* cove-ctl - the verbs of `cove` that talk to a server or to kept sandboxes. */
#include "client/ctl/ctl.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/id.h"
#include "host/jailer/jailer.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

/* Connecting to a kept sandbox whose jailer has died removes its socket. */
static int ctl_list_kept(const char *state_dir, void (*each)(void *arg, const char *id, uint64_t since_real_ns),
                         void *arg, struct err *err)
{
    char path[PATH_MAX];
    struct dirent *entry;
    struct stat st;

    snprintf(path, sizeof(path), "%s/kept", state_dir);
    DIR *dir = opendir(path);
    if (!dir && errno == ENOENT)
        return 0;
    if (!dir)
        return err_sys(err, errno == EACCES ? ERR_DENIED : ERR_SYS, "%.120s", path);
    while ((entry = readdir(dir))) {
        auto_fd int sock = -1;

        if (!id_valid(entry->d_name, "sb") || fstatat(dirfd(dir), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (jailer_connect_kept(state_dir, entry->d_name, &sock, NULL) == 0)
            each(arg, entry->d_name, (uint64_t)st.st_mtim.tv_sec * NS_PER_S + (uint64_t)st.st_mtim.tv_nsec);
    }
    closedir(dir);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct kept_access kept = { jailer_connect_kept, ctl_list_kept };

    return ctl_main(argc, argv, &kept);
}
