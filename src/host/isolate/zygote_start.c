/* A zygote loads modules that the operator chose, which is much third-party code. It gets the
 * template's root, an empty network and the owner's uid, and nothing else. Its rights follow from
 * that uid alone.
 *
 * Its resource limits stay unchanged: a fork must be able to set those of its sandbox, and a
 * lowered limit cannot be raised again. */
#include "host/isolate/zygote_start.h"

#include "core/base/fd.h"
#include "inside/confine/caps.h"
#include "host/isolate/sys.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>

static NORETURN void zygote_start_child(uid_t owner, const char *language, const char *preload, int sock)
{
    char path[64];
    char *const argv[] = { (char *)(uintptr_t) "zygote", (char *)(uintptr_t)preload, NULL };
    /* One thread each: a process with more threads cannot be forked safely. */
    static char *const env[] = { (char *)(uintptr_t) "PATH=/usr/local/bin:/usr/bin:/bin",
                                 (char *)(uintptr_t) "LANG=C.UTF-8",
                                 (char *)(uintptr_t) "HOME=/workspace",
                                 (char *)(uintptr_t) "OPENBLAS_NUM_THREADS=1",
                                 (char *)(uintptr_t) "OMP_NUM_THREADS=1",
                                 (char *)(uintptr_t) "MKL_NUM_THREADS=1",
                                 NULL };
    struct sys_parent_death bond = { .signo = SIGKILL, .parent = getppid() };
    sigset_t none;
    struct err err;

    snprintf(path, sizeof(path), "/.cove/kernels/%s/zygote", language);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask(022);
    /* Modules that write during import (for example a font cache) get a private /tmp. */
    if (unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS) < 0 ||
        mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=32m,mode=1777") < 0)
        _exit(125);
    if (setsid() < 0 || (sys_new_keyring() < 0 && errno != ENOSYS) || fd_keep_only(&sock, 1) < 0 ||
        fcntl(sock, F_SETFD, 0) < 0)
        _exit(125);
    if (setgroups(0, NULL) < 0 || setresgid(owner, owner, owner) < 0 || setresuid(owner, owner, owner) < 0 ||
        caps_drop_all(&err) < 0)
        _exit(125);
    sys_parent_death_restore(&bond);
    (void)execve(path, argv, env);
    _exit(127);
}

int zygote_start(uid_t owner, const char *language, const char *preload, int sock, struct err *err)
{
    pid_t pid = fork();

    if (pid == 0)
        zygote_start_child(owner, language, preload, sock);
    return pid < 0 ? err_sys(err, ERR_SYS, "cannot start a zygote") : 0;
}
