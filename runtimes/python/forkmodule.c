/* _covefork - forks a Python kernel so that the copy is a child of PID 1.
 *
 * There are two processes: `first` shares our memory and only forks; PID 1 becomes the parent of
 * the copy when `first` exits. Only the copy is a real fork, so page tables are copied once, and
 * fork handlers of libraries run as usual. The copy continues only after PID 1 is its parent:
 * before that PID 1 would not recognize it as a child.
 *
 * While memory is shared, all signals are blocked: a handler would run in the wrong process. Uses
 * the limited API, so that one build works with every Python from 3.7 on. */
#define Py_LIMITED_API 0x03070000
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#define CLONE_STACK_BYTES (64 * 1024) /* fork handlers of libraries run on it */

static struct {
    jmp_buf home;
    int sys;
    unsigned char stack[CLONE_STACK_BYTES] __attribute__((aligned(16)));
} fork_shared;

static int fork_first_process(void *unused)
{
    (void)unused;
    pid_t pid = fork();

    if (pid == 0)
        longjmp(fork_shared.home, 1);
    fork_shared.sys = pid < 0 ? errno : 0;
    _exit(0);
}

/* Waits until the other end is closed, which means that `first` and the original have both passed
 * this point. */
static void fork_wait_for_end(int fd)
{
    char c;

    while (read(fd, &c, 1) < 0 && errno == EINTR)
        ;
    close(fd);
}

/* Returns 1 in the copy, 0 in the original, -1 if there is no copy. */
static int fork_as_sibling(const int gate[2])
{
    int status = 0;

    if (setjmp(fork_shared.home)) { /* the copy has all of our memory, so this frame still exists */
        close(gate[1]);
        fork_wait_for_end(gate[0]);
        return 1;
    }
    pid_t pid = clone(fork_first_process, fork_shared.stack + CLONE_STACK_BYTES, CLONE_VM | CLONE_VFORK, NULL);
    if (pid < 0) {
        fork_shared.sys = errno;
        return -1;
    }
    while (waitpid(pid, &status, __WALL) < 0 && errno == EINTR)
        ;
    if (fork_shared.sys == 0 && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
        fork_shared.sys = ECHILD; /* it was killed before it could fork */
    return fork_shared.sys ? -1 : 0;
}

static PyObject *fork_module_fork(PyObject *self, PyObject *none)
{
    sigset_t all, before;
    int gate[2];

    (void)self;
    (void)none;
    if (pipe2(gate, O_CLOEXEC) < 0)
        return PyErr_SetFromErrno(PyExc_OSError);
    PyOS_BeforeFork();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    fork_shared.sys = 0;
    int rc = fork_as_sibling(gate);
    int sys = fork_shared.sys;
    if (rc == 1) {
        PyOS_AfterFork_Child();
        sigprocmask(SIG_SETMASK, &before, NULL);
        Py_RETURN_NONE;
    }
    close(gate[0]);
    close(gate[1]);
    sigprocmask(SIG_SETMASK, &before, NULL);
    PyOS_AfterFork_Parent();
    if (rc == 0)
        Py_RETURN_NONE;
    errno = sys;
    return PyErr_SetFromErrno(PyExc_OSError);
}

PyMODINIT_FUNC PyInit__covefork(void);
PyMODINIT_FUNC PyInit__covefork(void)
{
    static PyMethodDef methods[] = {
        { "fork", fork_module_fork, METH_NOARGS,
          "Returns in this process and in its copy, which is a child of PID 1." },
        { NULL, NULL, 0, NULL },
    };
    static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, .m_name = "_covefork", .m_size = -1,
                                         .m_methods = methods };

    return PyModule_Create(&module);
}
