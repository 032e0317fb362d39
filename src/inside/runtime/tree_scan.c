/* Directories found but not yet read are stored as paths, not as open descriptors, so a deep tree
 * costs no more than a wide one. Each is opened from the top by openat2, which follows no link: a
 * directory that was replaced by a link meanwhile is not opened. */
#include "inside/runtime/tree_scan.h"

#include "core/base/fd.h"
#include "inside/runtime/path.h"

#include <fcntl.h>
#include <stdio.h>

#define PENDING_MAX (8u * 1024u * 1024u)

void tree_scan_init(struct tree_scan *s, int root)
{
    *s = (struct tree_scan){ .root = root };
    buf_add(&s->pending, "", 1);
}

void tree_scan_done(struct tree_scan *s)
{
    if (s->dir)
        closedir(s->dir);
    fd_close(&s->root);
    buf_done(&s->pending);
}

/* Opens the last pending directory. False if none is left. */
static bool tree_scan_enter_dir(struct tree_scan *s)
{
    while (s->pending.len > 0) {
        size_t at = s->pending.len - 1;

        while (at > 0 && s->pending.data[at - 1] != '\0')
            at--;
        memcpy(s->prefix, s->pending.data + at, s->pending.len - at);
        s->pending.len = at;
        int fd = path_beneath(s->root, s->prefix[0] ? s->prefix : ".", O_RDONLY | O_DIRECTORY, true);
        s->dir = fd < 0 ? NULL : fdopendir(fd);
        if (s->dir)
            return true;
        if (fd >= 0)
            close(fd);
        s->skipped++;
    }
    return false;
}

static bool tree_scan_is_dots(const char *name)
{
    return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

static bool tree_scan_stat_entry(struct tree_scan *s, const struct dirent *d, struct tree_scan_item *it)
{
    size_t prefix = strlen(s->prefix);
    int n = snprintf(it->path, sizeof(it->path), "%s%s%s", s->prefix, prefix ? "/" : "", d->d_name);

    if (n < 0 || (size_t)n >= sizeof(it->path) || fstatat(dirfd(s->dir), d->d_name, &it->st, AT_SYMLINK_NOFOLLOW) < 0) {
        s->skipped++;
        return false;
    }
    it->dirfd = dirfd(s->dir);
    it->name = it->path + prefix + (prefix ? 1 : 0);
    if (!S_ISDIR(it->st.st_mode))
        return true;
    if (s->pending.len + (size_t)n + 1 > PENDING_MAX)
        s->skipped++;
    else
        buf_add(&s->pending, it->path, (size_t)n + 1);
    return true;
}

bool tree_scan_next(struct tree_scan *s, struct tree_scan_item *ret)
{
    for (;;) {
        if (!s->dir && !tree_scan_enter_dir(s))
            return false;
        struct dirent *d = readdir(s->dir);
        if (!d) {
            closedir(s->dir);
            s->dir = NULL;
        } else if (!tree_scan_is_dots(d->d_name) && tree_scan_stat_entry(s, d, ret)) {
            return true;
        }
    }
}
