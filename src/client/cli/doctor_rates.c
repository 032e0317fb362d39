/* A rate can only be measured by time, and a transfer may be slow for other reasons. So the same
 * bytes are first written and read without a sandbox: if that is already slow, the cause of a slow
 * transfer is unknown, and no result is reported. O_DIRECT bypasses the page cache, whose transfers
 * involve no disk and are never throttled. */
#include "client/cli/doctor_rates.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK (64 * KIB)
#define DOCTOR_RATES_BASELINE_MAX_MS 100u
#define STALE_DIR_PREFIX "cove-doctor-"
#define STALE_AFTER_S 600u

static int doctor_rates_transfer(int fd, bool writing)
{
    static _Alignas(4096) char chunk[CHUNK];

    for (off_t at = 0; at < (off_t)DOCTOR_RATES_BYTES; at += (off_t)CHUNK)
        if ((writing ? pwrite(fd, chunk, CHUNK, at) : pread(fd, chunk, CHUNK, at)) != (ssize_t)CHUNK)
            return -1;
    return 0;
}

static bool doctor_rates_disk_is_fast(int dir, uid_t uid, gid_t gid, char *why, size_t cap)
{
    auto_fd int fd = openat(dir, DOCTOR_RATES_FILE, O_RDWR | O_CREAT | O_EXCL | O_DIRECT | O_CLOEXEC, 0600);

    if (fd < 0 || doctor_rates_transfer(fd, true) < 0) { /* the first write also allocates the blocks */
        snprintf(why, cap, "the directory is not on a disk with direct I/O (%s)", strerror(errno));
        return false;
    }
    uint64_t began = clock_mono_ns();
    if (fchown(fd, uid, gid) < 0 || doctor_rates_transfer(fd, true) < 0 || doctor_rates_transfer(fd, false) < 0) {
        snprintf(why, cap, "%s", strerror(errno));
        return false;
    }
    uint64_t ms = (clock_mono_ns() - began) / NS_PER_MS;
    if (ms <= DOCTOR_RATES_BASELINE_MAX_MS)
        return true;
    snprintf(why, cap, "the disk is too busy: %u KiB took %" PRIu64 " ms without a limit",
             (unsigned)(2 * DOCTOR_RATES_BYTES / KIB), ms);
    return false;
}

/* Removes the directory of a doctor that was killed: old enough not to be under construction, and
 * without the lock that a running doctor holds. Only the known file name below the opened directory
 * is removed, so other files in a world-writable directory are safe. */
static void doctor_rates_remove_stale_dir(int parent, const char *name)
{
    auto_fd int dir = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;

    if (dir < 0 || fstat(dir, &st) < 0 || flock(dir, LOCK_EX | LOCK_NB) < 0 ||
        clock_real_ns() / NS_PER_S < (uint64_t)st.st_mtim.tv_sec + STALE_AFTER_S)
        return;
    (void)unlinkat(dir, DOCTOR_RATES_FILE, 0);
    (void)unlinkat(parent, name, AT_REMOVEDIR);
}

static void doctor_rates_remove_stale(const char *parent)
{
    DIR *d = opendir(parent);
    const struct dirent *e;

    while (d && (e = readdir(d)))
        if (str_starts(e->d_name, STALE_DIR_PREFIX))
            doctor_rates_remove_stale_dir(dirfd(d), e->d_name);
    if (d)
        closedir(d);
}

bool doctor_rates_create(struct doctor_rates *r, const char *parent, uid_t uid, gid_t gid, char *why, size_t cap)
{
    r->dir = -1;
    doctor_rates_remove_stale(parent);
    snprintf(r->path, sizeof(r->path), "%.40s/" STALE_DIR_PREFIX "XXXXXX", parent);
    if (!mkdtemp(r->path)) {
        snprintf(why, cap, "%s: %s", parent, strerror(errno));
        r->path[0] = '\0';
        return false;
    }
    r->dir = open(r->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    (void)flock(r->dir, LOCK_EX | LOCK_NB); /* held until the process ends */
    if (r->dir >= 0 && fchown(r->dir, uid, gid) == 0 && doctor_rates_disk_is_fast(r->dir, uid, gid, why, cap))
        return true;
    doctor_rates_done(r);
    return false;
}

void doctor_rates_done(struct doctor_rates *r)
{
    if (r->dir >= 0)
        (void)unlinkat(r->dir, DOCTOR_RATES_FILE, 0);
    if (r->path[0])
        (void)rmdir(r->path);
    r->path[0] = '\0';
    fd_close(&r->dir);
}
