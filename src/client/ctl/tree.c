/* Copies directories in both directions. The API transfers them as tar archives, and the local
 * tar(1) packs and unpacks them: it is hardened against hostile archives better than our own code
 * would be.
 *
 * An archive from a sandbox is hostile input, so:
 * 1. It is unpacked into a new directory, which gets its name when it is complete. In an existing
 *    directory, a link of an earlier copy could redirect an entry; tar itself defers the links of
 *    this archive.
 * 2. Owners, setuid bits and devices are not restored: tar runs without the capability
 *    to make devices. */
#include "client/ctl/ctl_internal.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "remote/fetch/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOT_STARTED 127

struct ctl_tar_process {
    pid_t pid;
    int fd; /* standard input or output of tar */
    struct err *err;
};

/* argv[0] is "tar". `out`: we read its output; otherwise we write its input. */
static int ctl_tree_start_tar(struct ctl_tar_process *t, const char *const *argv, bool out, struct err *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_sys(err, ERR_SYS, "pipe");
    auto_fd int ours = ends[out ? 0 : 1], theirs = ends[out ? 1 : 0];
    t->pid = fork();
    if (t->pid < 0)
        return err_sys(err, ERR_SYS, "fork");
    if (t->pid == 0) {
        (void)dup2(theirs, out ? STDOUT_FILENO : STDIN_FILENO);
        (void)signal(SIGPIPE, SIG_DFL);
        (void)unsetenv("TAR_OPTIONS");
        (void)prctl(PR_CAPBSET_DROP, CAP_MKNOD, 0, 0, 0); /* a process that may not drop it does not have it */
        execvp("tar", (char *const *)(uintptr_t)argv);
        _exit(NOT_STARTED);
    }
    t->fd = take_fd(&ours);
    t->err = err;
    return 0;
}

/* tar has already printed its errors on standard error. */
static int ctl_tree_end_tar(struct ctl_tar_process *t, const char *what, struct err *err)
{
    int status = 0;

    fd_close(&t->fd);
    while (waitpid(t->pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_STARTED)
        return err_set(err, ERR_MISSING, "copying directories needs tar(1), which is not installed");
    return err_set(err, ERR_SYS, "tar could not %s the whole directory", what);
}

static ssize_t ctl_tree_read(void *arg, void *to, size_t room)
{
    struct ctl_tar_process *t = arg;
    ssize_t n;

    do
        n = read(t->fd, to, room);
    while (n < 0 && errno == EINTR);
    return n < 0 ? FETCH_STOP : n;
}

static bool ctl_tree_write(void *arg, const void *data, size_t len)
{
    struct ctl_tar_process *t = arg;

    if (fd_write_all(t->fd, data, len) == 0)
        return true;
    err_set(t->err, ERR_SYS, "tar stopped reading the archive");
    return false;
}

static int ctl_tree_make_remote_dir(struct ctl *c, const char *sandbox, const char *dir, struct err *err)
{
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/files/mkdir", sandbox);
    AUTO_JSON *body = json_pack("{s:s,s:b}", "path", dir, "parents", 1);
    auto_free char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;

    if (!text)
        return err_set(err, ERR_INVALID, "'%.120s': the name is not UTF-8", dir);
    return client_json(c->client, "POST", path, text, NULL, err);
}

int ctl_tree_upload(struct ctl *c, const char *dir, const char *sandbox, const char *to, struct err *err)
{
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/files/tar?path=%s", sandbox, to);
    const char *const argv[] = { "tar", "-c", "-f", "-", "-C", dir, ".", NULL };
    struct ctl_tar_process t = { .fd = -1 };
    struct err why = { 0 };
    AUTO_JSON *answer = NULL;

    if (ctl_tree_make_remote_dir(c, sandbox, to, err) < 0 || ctl_tree_start_tar(&t, argv, true, err) < 0)
        return -1;
    int bad = client_upload(c->client, path, "application/x-tar", FETCH_UNTIL_END, ctl_tree_read, &t, &answer, err);
    if (ctl_tree_end_tar(&t, "read", &why) < 0 &&
        !bad) { /* if the upload failed first, the error of tar is only a consequence */
        *err = why;
        return -1;
    }
    return bad ? -1 : c->json ? ctl_print_json(answer) : 0;
}

int ctl_tree_upload_kept(struct ctl *c, const char *dir, const char *sandbox, const char *to, struct err *err)
{
    const char *const argv[] = { "tar", "-c", "-f", "-", "-C", dir, ".", NULL };
    struct ctl_tar_process t = { .fd = -1 };
    struct err why = { 0 };

    if (ctl_tree_start_tar(&t, argv, true, err) < 0)
        return -1;
    int bad = ctl_kept_write(c, sandbox, "mkdir -p -- \"$1\" && exec tar -x -f - -C \"$1\"", to, t.fd, err);
    if (ctl_tree_end_tar(&t, "read", &why) < 0 && !bad) {
        *err = why;
        return -1;
    }
    return bad;
}

static int ctl_tree_remove_entry(const char *path, const struct stat *st UNUSED, int kind UNUSED, struct FTW *at UNUSED)
{
    (void)remove(path);
    return 0;
}

static int ctl_tree_unpack(struct ctl *c, const char *kept, const char *path, const char *into, struct err *err)
{
    const char *const argv[] = { "tar", "-x", "-f", "-", "--no-same-owner", "--no-same-permissions", "-C", into, NULL };
    struct ctl_tar_process t = { .fd = -1 };
    struct err why = { 0 };

    if (ctl_tree_start_tar(&t, argv, false, err) < 0)
        return -1;
    int bad = kept ? ctl_kept_read(c, kept, "exec tar -c -f - -C \"$1\" .", path, t.fd, err)
                   : client_download(c->client, path, ctl_tree_write, &t, err);
    if (!bad)
        bad = ctl_check_interrupt(c, err);
    if (ctl_tree_end_tar(&t, "unpack", &why) < 0 && (!bad || err->id == ERR_SYS)) {
        *err = why; /* the reason why tar stopped */
        bad = -1;
    }
    return bad;
}

int ctl_tree_download(struct ctl *c, const char *kept, const char *path, const char *to, struct err *err)
{
    auto_free char *beside = str_printf("%s.cove-part", to);
    struct stat st;

    if (lstat(to, &st) == 0)
        return err_set(err, ERR_EXISTS, "%.150s: already exists; a directory is copied to a new name", to);
    if (mkdir(beside, 0777) < 0)
        return err_sys(err,
                       errno == EEXIST   ? ERR_EXISTS
                       : errno == ENOENT ? ERR_MISSING
                                         : ERR_INVALID,
                       "%.150s", beside);
    int bad = ctl_tree_unpack(c, kept, path, beside, err);
    if (!bad && rename(beside, to) < 0)
        bad = err_sys(err, ERR_SYS, "%.150s", to);
    if (bad)
        (void)nftw(beside, ctl_tree_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return bad;
}
