#include "inside/confine/seccomp.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

static int seccomp_set_filter(const struct sock_filter *prog, size_t len, unsigned long flags)
{
    struct sock_fprog program = { .len = (unsigned short)len, .filter = (struct sock_filter *)(uintptr_t)prog };

    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
}

int seccomp_load(const struct sock_filter *prog, size_t len)
{
    return seccomp_set_filter(prog, len, 0);
}

/* Without WAIT_KILLABLE_RECV (before Linux 5.19) a signal turns one call into two notifications. */
int seccomp_load_with_listener(const struct sock_filter *prog, size_t len)
{
    int listener = seccomp_set_filter(prog, len,
                                      SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV);

    return listener < 0 && errno == EINVAL ? seccomp_set_filter(prog, len, SECCOMP_FILTER_FLAG_NEW_LISTENER) : listener;
}
