/* What executions write, in two plain files each: <id>.1 and <id>.2.
 *
 * A byte is in its file before the sandbox gets credit for it, and a file only grows; so what any reader was ever shown
 * is there after a kill, and the length of the two files together says exactly where a resumed execution goes on. A
 * disk that refuses costs the bytes and not the execution: they are counted, and told. */
#include "sandbox/inside.h"

#include "base/fd.h"
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

int output_open(const struct manager *m, const char *id, int channel, int flags)
{
    char name[ID_SIZE + 2];

    snprintf(name, sizeof(name), "%s.%d", id, channel);
    return openat(m->output_dir, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
}

int manager_output(struct manager *m, const char *id, int channel)
{
    if (!id_valid(id, "ex")) {
        errno = ENOENT;
        return -1;
    }
    return output_open(m, id, channel, O_RDONLY);
}

void output_append(struct ex *ex, int channel, const void *data, size_t len)
{
    int *fd = &ex->fd[channel - 1];
    struct manager *m = ex->sb->m;

    if (*fd < 0 && ex->lost_bytes == 0)
        *fd = output_open(m, ex->id, channel, O_WRONLY | O_CREAT | O_APPEND);
    const uint8_t *p = data;
    while (len > 0 && *fd >= 0 && ex->lost_bytes == 0) {
        ssize_t n = write(*fd, p, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        p += n;
        len -= (size_t)n;
        ex->len[channel - 1] += (uint64_t)n;
        m->stats.output_bytes += (uint64_t)n;
    }
    if (len == 0)
        return;
    if (ex->lost_bytes == 0)
        log_error("output of %s is not stored from here on: %s", ex->id, strerror(errno));
    ex->lost_bytes += len;
    m->stats.output_lost_bytes += len;
}

int output_load(struct ex *ex)
{
    struct stat st;

    for (int i = 0; i < 2; i++) {
        ex->fd[i] = output_open(ex->sb->m, ex->id, i + 1, O_WRONLY | O_APPEND);
        if (ex->fd[i] < 0 && errno == ENOENT)
            continue;
        if (ex->fd[i] < 0 || fstat(ex->fd[i], &st) < 0)
            return -1;
        ex->len[i] = (uint64_t)st.st_size;
    }
    return 0;
}

void output_close(struct ex *ex)
{
    fd_close(&ex->fd[0]);
    fd_close(&ex->fd[1]);
}

void output_remove(const struct manager *m, const char *id)
{
    char name[ID_SIZE + 2];

    for (int i = 1; i <= 2; i++) {
        snprintf(name, sizeof(name), "%s.%d", id, i);
        if (unlinkat(m->output_dir, name, 0) < 0 && errno != ENOENT)
            log_warn("output %s: %s", name, strerror(errno));
    }
}
