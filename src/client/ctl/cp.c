/* cove cp: copies a file or directory to or from a sandbox of a server or a kept one; - is our
 * standard input or output. With --tar the local file is a tar archive of a directory of the
 * sandbox.
 *
 * Paths have the meaning of cp(1) and scp(1): in a sandbox, a relative path starts at
 * /workspace. A destination that ends with a slash, or is a local directory, receives the file
 * under its own name. */
#include "client/ctl/ctl_internal.h"

#include "core/base/fd.h"
#include "core/base/id.h"
#include "core/base/str.h"
#include "client/cli/report.h"
#include "remote/fetch/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct ctl_cp_location { /* one side of the copy */
    char *id;            /* sandbox; NULL: local */
    bool kept;           /* on this host, by `cove run --keep` */
    const char *path;
};

struct ctl_cp_stream {
    int fd;
    struct err *err;
    uint64_t bytes;
};

static int ctl_cp_parse_location(struct ctl *c, const char *word, struct ctl_cp_location *ret, struct err *err)
{
    const char *colon = strchr(word, ':');

    ret->path = word;
    if (!colon || !ctl_is_sandbox_word(word, (size_t)(colon - word)))
        return 0;
    auto_free char *name = str_dup_n(word, (size_t)(colon - word));
    ret->path = colon + 1;
    struct ctl_sandbox_name found;
    if (ctl_find_sandbox(c, name, &found, err) < 0)
        return -1;
    ret->id = found.id;
    ret->kept = found.kept;
    return 0;
}

static ssize_t ctl_cp_read(void *arg, void *to, size_t room)
{
    struct ctl_cp_stream *p = arg;
    ssize_t n;

    do
        n = read(p->fd, to, room);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        p->bytes += (uint64_t)n;
    return n < 0 ? FETCH_STOP : n;
}

static bool ctl_cp_write(void *arg, const void *data, size_t len)
{
    struct ctl_cp_stream *p = arg;

    if (fd_write_all(p->fd, data, len) < 0) {
        err_sys(p->err, errno == ENOSPC ? ERR_DISK_FULL : ERR_SYS, "write");
        return false;
    }
    p->bytes += len;
    return true;
}

static const char *ctl_cp_last_component(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* own: the name of the local file, used if the destination is a directory; "": none. */
static char *ctl_cp_target_path(const struct ctl_cp_location *e, const char *own)
{
    bool into = !*e->path || str_ends(e->path, "/");
    auto_free char *place = ctl_sandbox_path(e->path);

    return str_printf("%s%s", place, into ? own : "");
}

static char *ctl_cp_remote_path(const struct ctl_cp_location *e, bool tar, const char *own)
{
    auto_free char *path = ctl_cp_target_path(e, own);

    return ctl_api_path(tar ? "/v1/sandboxes/%s/files/tar?path=%s" : "/v1/sandboxes/%s/files?path=%s", e->id, path);
}

/* The last component of a path without trailing slashes; "" if there is none. The
 * caller frees it. */
static char *ctl_cp_base_name(const char *path)
{
    size_t len = strlen(path);

    while (len && path[len - 1] == '/')
        len--;
    auto_free char *whole = str_dup_n(path, len);
    const char *name = ctl_cp_last_component(whole);
    return str_dup(str_eq(name, ".") || str_eq(name, "..") ? "" : name);
}

static int ctl_cp_upload(struct ctl *c, const char *from, const struct ctl_cp_location *to, bool tar, struct err *err)
{
    bool here = str_eq(from, "-");
    auto_fd int fd = here ? dup(STDIN_FILENO) : open(from, O_RDONLY | O_CLOEXEC);
    struct ctl_cp_stream in = { .fd = fd, .err = err };
    struct stat st;
    AUTO_JSON *answer = NULL;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, errno == ENOENT ? ERR_MISSING : ERR_INVALID, "%.150s", from);
    if (S_ISDIR(st.st_mode) && tar)
        return err_set(err, ERR_INVALID, "%.150s: a directory, but --tar needs an archive; omit --tar", from);
    if (S_ISDIR(st.st_mode)) {
        auto_free char *name = ctl_cp_base_name(from), *place = ctl_cp_target_path(to, name);

        return to->kept ? ctl_tree_upload_kept(c, from, to->id, place, err)
                        : ctl_tree_upload(c, from, to->id, place, err);
    }
    if (to->kept) {
        auto_free char *place = ctl_cp_target_path(to, here ? "" : ctl_cp_last_component(from));

        return ctl_kept_write(c, to->id, "mkdir -p -- \"$(dirname -- \"$1\")\" && exec cat > \"$1\"", place, fd, err);
    }
    auto_free char *path = ctl_cp_remote_path(to, tar, tar || here ? "" : ctl_cp_last_component(from));
    uint64_t size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : FETCH_UNTIL_END;
    if (client_upload(c->client, path, tar ? "application/x-tar" : "application/octet-stream", size, ctl_cp_read, &in,
                      &answer, err) < 0)
        return -1;
    return c->json ? ctl_print_json(answer) : 0;
}

/* The file appears under its name only when it is complete. kept: the ID of a kept sandbox, in
 * which `path` is. */
static int ctl_cp_download_file(struct ctl *c, const char *kept, const char *path, const char *to, struct err *err)
{
    auto_free char *beside = str_printf("%s.cove-part", to);
    auto_fd int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    struct ctl_cp_stream out = { .fd = fd, .err = err };

    if (fd < 0)
        return err_sys(err, errno == ENOENT ? ERR_MISSING : ERR_INVALID, "%.150s", to);
    int bad = kept ? ctl_kept_read(c, kept, "exec cat -- \"$1\"", path, fd, err)
                   : client_download(c->client, path, ctl_cp_write, &out, err);
    if (!bad)
        bad = ctl_check_interrupt(c, err);
    if (!bad && rename(beside, to) < 0)
        bad = err_sys(err, ERR_SYS, "%.150s", to);
    if (bad)
        unlink(beside);
    return bad;
}

/* Makes the local path: in a directory, the file keeps its own name. The caller frees *ret. */
static int ctl_cp_local_path(const struct ctl_cp_location *from, const char *to, char **ret, struct err *err)
{
    auto_free char *name = ctl_cp_base_name(*from->path ? from->path : "/workspace");
    struct stat st;

    if (stat(to, &st) < 0 || !S_ISDIR(st.st_mode)) {
        *ret = str_dup(to);
        return 0;
    }
    if (!*name)
        return err_set(err, ERR_INVALID,
                       "%.150s: a local directory, and %.60s has no name to use in it; write the file name", to,
                       from->path);
    *ret = str_printf("%s/%s", to, name);
    return 0;
}

static int ctl_cp_download(struct ctl *c, const struct ctl_cp_location *from, const char *to, bool tar, struct err *err)
{
    auto_free char *path = ctl_cp_remote_path(from, tar, ""), *local = NULL;
    struct ctl_cp_stream out = { .fd = STDOUT_FILENO, .err = err };
    struct stat st;

    if (str_eq(to, "-"))
        return client_download(c->client, path, ctl_cp_write, &out, err);
    if (tar && stat(to, &st) == 0 && S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, "%.150s: a local directory; write the name of the archive, or omit --tar", to);
    if (ctl_cp_local_path(from, to, &local, err) < 0 || ctl_catch_interrupt(c, err) < 0)
        return -1;
    bool whole = !*from->path || str_ends(from->path, "/"); /* can only be a directory */
    if (!whole && (ctl_cp_download_file(c, NULL, path, local, err) == 0 || err->id != ERR_WRONG_KIND || tar))
        return err->id == ERR_NONE ? 0 : -1;
    auto_free char *archive = ctl_cp_remote_path(from, true, "");
    *err = (struct err){ 0 };
    return ctl_tree_download(c, NULL, archive, local, err);
}

static int ctl_cp_download_kept(struct ctl *c, const struct ctl_cp_location *from, const char *to, struct err *err)
{
    static const char *const is_directory[] = { "/bin/sh", "-c", "[ -d \"$1\" ]", "sh", NULL, NULL };
    auto_free char *path = ctl_cp_target_path(from, ""), *local = NULL;
    const char *argv[ARRAY_LEN(is_directory)];

    if (str_eq(to, "-"))
        return ctl_kept_read(c, from->id, "exec cat -- \"$1\"", path, STDOUT_FILENO, err);
    if (ctl_cp_local_path(from, to, &local, err) < 0)
        return -1;
    memcpy(argv, is_directory, sizeof(argv));
    argv[4] = path;
    int status = ctl_kept_exec(c, from->id, argv, false, false, err);
    if (status < 0)
        return -1;
    return status == 0 ? ctl_tree_download(c, from->id, path, local, err)
                       : ctl_cp_download_file(c, from->id, path, local, err);
}

int ctl_cp(struct ctl *c, struct err *err)
{
    bool tar = args_find(&c->args, OPT_TAR) != NULL;
    struct ctl_cp_location from = { 0 }, to = { 0 };

    if (ctl_require_args(c, 2, 2, "cp FILE SANDBOX:PATH, or cove cp SANDBOX:PATH FILE", err) < 0)
        return -1;
    int bad = ctl_cp_parse_location(c, c->args.rest[0], &from, err) < 0 ||
                      ctl_cp_parse_location(c, c->args.rest[1], &to, err) < 0
                  ? -1
                  : 0;
    if (!bad && !from.id == !to.id)
        bad = err_set(err, ERR_USAGE, "one argument must be SANDBOX:PATH and the other a local file");
    if (!bad && tar && (from.kept || to.kept))
        bad = err_set(err, ERR_USAGE, "--tar needs a sandbox of a server; omit it to copy a directory");
    else if (!bad && from.kept)
        bad = ctl_cp_download_kept(c, &from, to.path, err);
    else if (!bad)
        bad = to.id ? ctl_cp_upload(c, from.path, &to, tar, err) : ctl_cp_download(c, &from, to.path, tar, err);
    free(from.id);
    free(to.id);
    return bad;
}
