/* The order is that of the native driver (host/isolate/sandbox_child.c): the mounts need a
 * capability, and the filter forbids what earlier steps need. No user code runs before this. */
#include "inside/runtime/runtime_boot.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/mutate.h"
#include "core/base/str.h"
#include "core/wire/boot_file.h"
#include "core/wire/seccomp_listener.h"
#include "inside/confine/binds.h"
#include "inside/confine/caps.h"
#include "inside/confine/proc_mount.h"
#include "inside/confine/seccomp.h"

#include <errno.h>
#include <fcntl.h>

static int runtime_boot_mount_proc(const struct boot_file_header *head, struct err *err)
{
    struct proc_mask masks[BOOT_MASKS_MAX];

    for (uint32_t i = 0; i < head->nmasks; i++) {
        masks[i].is_dir = head->masks[i].is_dir;
        (void)str_copy(masks[i].name, sizeof(masks[i].name), head->masks[i].name);
    }
    return proc_mount(masks, head->nmasks, err);
}

/* The programs that were executed before had the namespaces as their task, and are not cove's. */
static int runtime_boot_check_namespaces(const struct boot_file_header *head, struct err *err)
{
    struct boot_namespaces inside;
    auto_fd int proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (wall_is_mutated("boot-namespaces"))
        return 0;
    return boot_namespaces_get(proc, &inside, err) < 0 ? -1 : boot_namespaces_check(&head->made_by, &inside, err);
}

static int runtime_boot_attach_binds(const struct boot_file_header *head, char *const *targets, struct err *err)
{
    struct lent_bind binds[BOOT_BINDS_MAX];
    int fd = head->notify ? BOOT_MONITOR_FD + 1 : BOOT_FILE_FD + 1;
    size_t n = 0;

    for (; targets[n]; n++) {
        if (n == BOOT_BINDS_MAX)
            return err_set(err, ERR_BUG, "more than %d mounts are lent", BOOT_BINDS_MAX);
        binds[n] = (struct lent_bind){ fd + (int)n, targets[n] };
    }
    if (binds_attach(binds, n, err) < 0)
        return -1;
    for (size_t i = 0; i < n; i++)
        close(binds[i].fd);
    return 0;
}

/* Both filters deny a call in the same way; with a listener the monitor also learns of it. */
static int runtime_boot_filter(const char *id, const struct boot_file_header *head, const struct sock_filter *programs,
                               struct err *err)
{
    int listener = head->notify ? seccomp_load_with_listener(programs, head->notify) : -1;
    int why = listener < 0 ? errno : 0;

    if (listener < 0 && seccomp_load(programs + head->notify, head->plain) < 0)
        return err_sys(err, ERR_WALL_MISSING, "system call filter");
    int sent = head->notify ? seccomp_listener_send(BOOT_MONITOR_FD, id, listener, why) : 0;
    fd_close(&listener); /* nothing that can answer for the filter may remain inside it */
    return sent < 0 ? err_sys(err, ERR_SYS, "cannot send the seccomp listener to the monitor") : 0;
}

int runtime_boot(const char *id, char *const *targets, struct err *err)
{
    struct boot_file_header head;
    auto_free struct sock_filter *programs = boot_file_read(BOOT_FILE_FD, &head, err);

    if (!programs || runtime_boot_mount_proc(&head, err) < 0 || runtime_boot_check_namespaces(&head, err) < 0 ||
        runtime_boot_attach_binds(&head, targets, err) < 0 || caps_drop_all(err) < 0)
        return -1;
    if (!wall_is_mutated("seccomp") && runtime_boot_filter(id, &head, programs, err) < 0)
        return -1;
    close(BOOT_FILE_FD);
    if (head.notify)
        close(BOOT_MONITOR_FD);
    /* The standard error of the program that started PID 1 is a pipe to the spawner. */
    return dup2(STDIN_FILENO, STDERR_FILENO) < 0 ? err_sys(err, ERR_SYS, "standard error") : 0;
}
