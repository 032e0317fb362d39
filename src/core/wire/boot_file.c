#include "core/wire/boot_file.h"

#include "core/base/fd.h"
#include "core/base/mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

int boot_file_make(const struct boot_file_header *head, const struct sock_filter *notify,
                   const struct sock_filter *plain, struct err *err)
{
    auto_fd int fd = memfd_create("boot", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0 || fd_write_all(fd, head, sizeof(*head)) < 0 ||
        fd_write_all(fd, notify, head->notify * sizeof(*notify)) < 0 ||
        fd_write_all(fd, plain, head->plain * sizeof(*plain)) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
        return err_sys(err, ERR_SYS, "cannot store the walls for the runtime");
    return take_fd(&fd);
}

static bool boot_file_header_valid(const struct boot_file_header *h)
{
    bool valid = h->plain > 0 && h->plain <= BOOT_PROGRAM_MAX && h->notify <= BOOT_PROGRAM_MAX &&
                 h->nmasks <= BOOT_MASKS_MAX;

    for (uint32_t i = 0; valid && i < h->nmasks; i++)
        valid = memchr(h->masks[i].name, '\0', sizeof(h->masks[i].name)) && !strchr(h->masks[i].name, '/');
    return valid;
}

struct sock_filter *boot_file_read(int fd, struct boot_file_header *ret, struct err *err)
{
    if (fd_pread_full(fd, ret, sizeof(*ret), 0) != (ssize_t)sizeof(*ret) || !boot_file_header_valid(ret)) {
        err_set(err, ERR_WALL_MISSING, "the walls that the runtime has to raise cannot be read");
        return NULL;
    }
    size_t bytes = ((size_t)ret->notify + ret->plain) * sizeof(struct sock_filter);
    auto_free struct sock_filter *programs = mem_alloc(bytes);
    if (fd_pread_full(fd, programs, bytes, sizeof(*ret)) != (ssize_t)bytes) {
        err_set(err, ERR_WALL_MISSING, "the system call filter is cut off");
        return NULL;
    }
    return take_ptr(&programs);
}

const char *const boot_namespace_names[BOOT_NAMESPACES] = { "user", "pid", "mnt", "ipc", "uts", "cgroup" };

int boot_namespaces_get(int proc, struct boot_namespaces *ret, struct err *err)
{
    char path[32];
    struct stat st;

    for (size_t i = 0; i < BOOT_NAMESPACES; i++) {
        snprintf(path, sizeof(path), "self/ns/%s", boot_namespace_names[i]);
        if (fstatat(proc, path, &st, 0) < 0)
            return err_sys(err, ERR_WALL_MISSING, "/proc/%s", path);
        ret->inodes[i] = st.st_ino;
    }
    return 0;
}

int boot_namespaces_check(const struct boot_namespaces *outside, const struct boot_namespaces *inside, struct err *err)
{
    for (size_t i = 0; i < BOOT_NAMESPACES; i++)
        if (outside->inodes[i] == inside->inodes[i])
            return err_set(err, ERR_WALL_MISSING,
                           "the program that makes the namespaces did not make a namespace of type %s; check that it "
                           "is the one of the distribution",
                           boot_namespace_names[i]);
    return 0;
}
