#include "core/base/key_file.h"

#include "core/base/fd.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/random.h>

void key_file_random(uint8_t ret[KEY_FILE_LEN])
{
    ssize_t n;

    do
        n = getrandom(ret, KEY_FILE_LEN, 0);
    while (n < 0 && errno == EINTR);
    if (n != KEY_FILE_LEN)
        abort(); /* a machine without random numbers cannot be trusted with keys */
}

/* Atomic: writes a temporary file and renames it. */
static int key_file_create(const char *path, uint8_t ret[KEY_FILE_LEN], struct err *err)
{
    auto_free char *fresh = str_printf("%s.new", path);
    auto_fd int fd = -1;

    (void)unlink(fresh);
    key_file_random(ret);
    fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0 || fd_write_all(fd, ret, KEY_FILE_LEN) < 0 || fsync(fd) < 0 || rename(fresh, path) < 0)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_STATE_DIR, "%.160s", path);
    return 0;
}

int key_file_load(const char *path, const char *consequence, uint8_t ret[KEY_FILE_LEN], struct err *err)
{
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    uint8_t more[KEY_FILE_LEN + 1];

    if (fd < 0 && errno == ENOENT)
        return key_file_create(path, ret, err);
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, more, sizeof(more));
    if (n < 0)
        return err_sys(err, ERR_STATE_DIR, "%.160s", path);
    if (n != KEY_FILE_LEN)
        return err_set(err, ERR_STATE_DIR, "%.100s: not the file of %d bytes that cove wrote; remove it (%s)", path,
                       KEY_FILE_LEN, consequence);
    memcpy(ret, more, KEY_FILE_LEN);
    explicit_bzero(more, sizeof(more));
    return 0;
}
