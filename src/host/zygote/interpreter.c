/* Before the claim this process belongs to no user and waits without cost. Everything it inherited
 * from the zygote that the sandbox's user must not have was dropped before; the last wall is raised
 * here, when the claim defines which files the sandbox may see. */
#include "host/zygote/interpreter.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/mutate.h"
#include "core/wire/interpreter.h"

#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_landlock_restrict_self
#define SYS_landlock_restrict_self 446
#endif

static int interpreter_apply_claim(const int *fds, size_t nfds, struct err *err)
{
    if (nfds < 1 || nfds > 2)
        return err_set(err, ERR_PROTOCOL, "the claim has %zu descriptors instead of 1 or 2", nfds);
    if (fchdir(fds[0]) < 0)
        return err_sys(err, ERR_SYS, "cannot enter the working directory");
    if (nfds == 2 && !wall_is_mutated("landlock") && syscall(SYS_landlock_restrict_self, fds[1], 0u) < 0)
        return err_sys(err, ERR_WALL_MISSING, "cannot apply Landlock");
    return 0;
}

int interpreter_wait_for_claim(int kernel, char **ret, size_t *ret_len, struct err *err)
{
    uint32_t len = 0;
    int fds[FD_PASS_MAX];
    size_t nfds = FD_PASS_MAX;
    ssize_t n;

    while ((n = fd_recv(kernel, &len, sizeof(len), fds, &nfds, 0)) < 0 && errno == EINTR)
        nfds = FD_PASS_MAX;
    if (n == 0 || (n < 0 && errno == ECONNRESET))
        return 1;
    if (n == (ssize_t)sizeof(len) && nfds == 0 && len == INTERPRETER_WARM_UP)
        return 2;
    int bad = n < 0 ? err_sys(err, ERR_LOST, "cannot receive the claim") : interpreter_apply_claim(fds, nfds, err);
    for (size_t i = 0; n > 0 && i < nfds; i++)
        close(fds[i]);
    if (!bad && (n != (ssize_t)sizeof(len) || len > INTERPRETER_ENV_MAX))
        bad = err_set(err, ERR_PROTOCOL, "malformed claim of %u bytes", len);
    if (bad)
        return -1;
    *ret = mem_alloc(len + 1);
    *ret_len = len;
    if (fd_read_full(kernel, *ret, len) == (ssize_t)len)
        return 0;
    free(*ret);
    return err_set(err, ERR_LOST, "the claim is incomplete");
}

void interpreter_report_ready(int kernel)
{
    char c = INTERPRETER_READY;

    (void)!write(kernel, &c, 1); /* if the peer is gone, the next read fails */
}
