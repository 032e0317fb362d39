/* The setup that all helpers forked by `cove` share. The caller of cove may have blocked or ignored
 * signals for cove itself: a helper that inherited a blocked SIGCHLD or SIGTERM would wait forever.
 */
#include "core/base/child.h"

#include "core/base/fd.h"

#include <signal.h>
#include <sys/prctl.h>

/* A process group costs a tenth of a session. */
static void child_set_up(const char *name, bool session)
{
    struct sigaction ignore = { .sa_handler = SIG_IGN };
    sigset_t none;

    prctl(PR_SET_NAME, name);
    if (session)
        setsid();
    else
        setpgid(0, 0);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    sigaction(SIGPIPE, &ignore, NULL);
    sigaction(SIGHUP, &ignore, NULL);
}

int child_fork(const char *name, bool session, int *ret_sock, pid_t *ret_pid, struct err *err)
{
    int sv[2];

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
        return err_sys(err, ERR_SYS, "socketpair");
    auto_fd int near = sv[0], far = sv[1];
    pid_t pid = fork();
    if (pid < 0)
        return err_sys(err, ERR_LIMIT, "start %s", name);
    if (pid == 0)
        child_set_up(name, session);
    *ret_sock = take_fd(pid ? &near : &far);
    *ret_pid = pid;
    return 0;
}
