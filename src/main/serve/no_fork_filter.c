/* A seccomp filter of a dozen instructions. A flag of clone distinguishes a thread from a process.
 * clone3 keeps its flags in memory, which no filter can read, so it fails with ENOSYS and libc
 * falls back to clone. The other system call ABIs (32-bit, x32), which have their own numbers, are
 * not used by this program and are refused. */
#include "main/serve/no_fork_filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define X32_BIT 0x40000000u
#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define REFUSE(nr) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (nr), 0, 1), RET(SECCOMP_RET_ERRNO | EPERM)
#define RET(what) BPF_STMT(BPF_RET | BPF_K, (what))

int no_fork_filter_install(bool looked_into, struct err *err)
{
    struct sock_filter code[] = {
        LOAD(arch),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0),
        RET(SECCOMP_RET_KILL_PROCESS),
        LOAD(nr),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1),
        RET(SECCOMP_RET_ERRNO | ENOSYS),
        REFUSE(SYS_fork),
        REFUSE(SYS_vfork),
        REFUSE(SYS_execve),
        REFUSE(SYS_execveat),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1),
        RET(SECCOMP_RET_ERRNO | ENOSYS),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 1, 0),
        RET(SECCOMP_RET_ALLOW),
        LOAD(args[0]), /* lower half of the flags */
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, looked_into ? CLONE_VM : CLONE_THREAD, 1, 0),
        RET(SECCOMP_RET_ERRNO | EPERM),
        RET(SECCOMP_RET_ALLOW),
    };
    struct sock_fprog prog = { .len = ARRAY_LEN(code), .filter = code };

    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog, 0, 0) < 0)
        return err_sys(err, ERR_SYS, "cannot install the filter against new processes");
    return 0;
}
