/* cove cp: a file into a sandbox or out of it; - is our own standard input or output. With --tar a whole directory, as
 * the archive that tar(1) reads and writes here: archives from a sandbox are hostile, and we unpack none.
 *
 * Paths mean what they mean to cp(1) and scp(1): inside, a relative one starts at /workspace; one that ends with a
 * slash is a directory that the file goes into under its own name, and so is a directory here. */
#include "ctl/inside.h"

#include "base/fd.h"
#include "base/id.h"
#include "base/str.h"
#include "cli/report.h"
#include "fetch/fetch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define AUTO_JSON __attribute__((cleanup(json_decrefp))) json_t

struct end {  /* one side of the copy */
    char *id; /* NULL is here */
    const char *path;
};

struct pipe_end {
    int fd;
    struct err *err;
    uint64_t bytes;
};

static int parse(struct ctl *c, const char *word, struct end *ret, struct err *err)
{
    const char *colon = strchr(word, ':');

    ret->path = word;
    if (!colon || !ctl_is_beginning(word, (size_t)(colon - word)))
        return 0;
    auto_free char *name = str_dup_n(word, (size_t)(colon - word));
    ret->path = colon + 1;
    return ctl_name(c, name, &ret->id, err);
}

static ssize_t give(void *arg, void *to, size_t room)
{
    struct pipe_end *p = arg;
    ssize_t n;

    do
        n = read(p->fd, to, room);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        p->bytes += (uint64_t)n;
    return n < 0 ? FETCH_STOP : n;
}

static bool take(void *arg, const void *data, size_t len)
{
    struct pipe_end *p = arg;

    if (fd_write_all(p->fd, data, len) < 0) {
        err_sys(p->err, errno == ENOSPC ? ERR_DISK_FULL : ERR_SYS, "write");
        return false;
    }
    p->bytes += len;
    return true;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

/* own: the name of the file here, under which it goes into a directory; "" when it has none. */
static char *remote_path(const struct end *e, bool tar, const char *own)
{
    bool into = !*e->path || str_ends(e->path, "/");
    auto_free char *place = ctl_inside(e->path);
    auto_free char *path = str_printf("%s%s", place, into ? own : "");

    return ctl_path(tar ? "/v1/sandboxes/%s/files/tar?path=%s" : "/v1/sandboxes/%s/files?path=%s", e->id, path);
}

static int upload(struct ctl *c, const char *from, const struct end *to, bool tar, struct err *err)
{
    bool here = str_eq(from, "-");
    auto_fd int fd = here ? dup(STDIN_FILENO) : open(from, O_RDONLY | O_CLOEXEC);
    struct pipe_end in = { .fd = fd, .err = err };
    struct stat st;
    AUTO_JSON *answer = NULL;

    if (fd < 0 || fstat(fd, &st) < 0)
        return err_sys(err, errno == ENOENT ? ERR_MISSING : ERR_INVALID, "%.150s", from);
    if (S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID,
                       "%.100s is a directory; send it with: tar -c -C %.60s . | cove cp --tar - %s:DIR", from, from,
                       to->id);
    auto_free char *path = remote_path(to, tar, tar || here ? "" : last_part(from));
    uint64_t size = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : FETCH_UNTIL_END;
    if (client_upload(c->client, path, tar ? "application/x-tar" : "application/octet-stream", size, give, &in, &answer,
                      err) < 0)
        return -1;
    return c->json ? ctl_print_json(answer) : 0;
}

/* A file appears under its name when it is whole, and not at all otherwise. */
static int download_to(struct ctl *c, const char *path, const char *to, struct err *err)
{
    auto_free char *beside = str_printf("%s.cove-part", to);
    auto_fd int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    struct pipe_end out = { .fd = fd, .err = err };

    if (fd < 0)
        return err_sys(err, errno == ENOENT ? ERR_MISSING : ERR_INVALID, "%.150s", to);
    int bad = client_download(c->client, path, take, &out, err);
    if (!bad && rename(beside, to) < 0)
        bad = err_sys(err, ERR_SYS, "%.150s", to);
    if (bad)
        unlink(beside);
    return bad;
}

static int download(struct ctl *c, const struct end *from, const char *to, bool tar, struct err *err)
{
    auto_free char *path = remote_path(from, tar, "");
    struct pipe_end out = { .fd = STDOUT_FILENO, .err = err };
    struct stat st;

    if (str_eq(to, "-"))
        return client_download(c->client, path, take, &out, err);
    if (stat(to, &st) < 0 || !S_ISDIR(st.st_mode))
        return download_to(c, path, to, err);
    if (tar || !*last_part(from->path))
        return err_set(err, ERR_INVALID, "%.150s is a directory here; name the file", to);
    auto_free char *inside = str_printf("%s/%s", to, last_part(from->path));
    return download_to(c, path, inside, err);
}

int ctl_cp(struct ctl *c, struct err *err)
{
    bool tar = args_find(&c->args, OPT_TAR) != NULL;
    struct end from = { 0 }, to = { 0 };

    if (ctl_words(c, 2, 2, "cp FILE SANDBOX:PATH, or cove cp SANDBOX:PATH FILE", err) < 0)
        return -1;
    int bad = parse(c, c->args.rest[0], &from, err) < 0 || parse(c, c->args.rest[1], &to, err) < 0 ? -1 : 0;
    if (!bad && !from.id == !to.id)
        bad = err_set(err, ERR_USAGE, "one of the two has to be in a sandbox, as SANDBOX:PATH, and the other here");
    if (!bad)
        bad = to.id ? upload(c, from.path, &to, tar, err) : download(c, &from, to.path, tar, err);
    free(from.id);
    free(to.id);
    return bad;
}
