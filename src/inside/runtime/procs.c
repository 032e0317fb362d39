/* The bytes read and written by an execution are the difference of PID 1's own counters around the
 * reaping of the main process, because the kernel then adds the counters of the child, and of the
 * children it waited for, to those of the parent. Reading /proc/PID/io of the child does not work:
 * the files of a zombie belong to root, and a short program becomes a zombie before its files can
 * be opened.
 *
 * A process tree is found by parent links and session. A process that left both (double fork and
 * setsid), or that is hidden by a /proc mounted with hidepid, cannot be found this way. The caller
 * then kills everything in the sandbox if nothing else runs in it, or the host kills it from
 * outside. */
#include "inside/runtime/procs.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

#define PASSES_MAX 16

void procs_init(struct procs *p)
{
    p->io_fd = open("/proc/self/io", O_RDONLY | O_CLOEXEC);
    p->loadavg_fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);
}

void procs_done(struct procs *p)
{
    fd_close(&p->io_fd);
    fd_close(&p->loadavg_fd);
}

static ssize_t procs_reread(int fd, char *text, size_t cap)
{
    ssize_t n = fd < 0 ? -1 : pread(fd, text, cap - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    return n;
}

bool procs_parse_io(const char *text, uint64_t *rchar, uint64_t *wchar)
{
    return str_eat(&text, "rchar: ") && str_eat_u64(&text, UINT64_MAX, rchar) && str_eat(&text, "\nwchar: ") &&
           str_eat_u64(&text, UINT64_MAX, wchar) && *text == '\n';
}

bool procs_io(const struct procs *p, struct procs_io *ret)
{
    char text[512];
    ssize_t n = procs_reread(p->io_fd, text, sizeof(text));

    if (n <= 0 || !procs_parse_io(text, &ret->rchar, &ret->wchar))
        return false;
    ret->cost = (size_t)n;
    return true;
}

bool procs_last_pid(const struct procs *p, uint64_t *ret)
{
    char text[128];

    if (procs_reread(p->loadavg_fd, text, sizeof(text)) <= 0)
        return false;
    const char *last = strrchr(text, ' '); /* "0.00 0.01 0.05 1/123 4567\n" */
    return last && (last++, str_eat_u64(&last, UINT32_MAX, ret)) && *last == '\n';
}

bool procs_parse_stat(const char *text, char *state, pid_t *ppid, pid_t *session)
{
    const char *p = strrchr(text, ')'); /* the name before it may contain anything, even ") R 1 1 1" */
    uint32_t parent, group, sid;

    if (!p || p[1] != ' ' || p[2] == '\0')
        return false;
    *state = p[2];
    p += 3;
    if (!str_eat(&p, " ") || !str_eat_u32(&p, INT32_MAX, &parent) || !str_eat(&p, " ") ||
        !str_eat_u32(&p, INT32_MAX, &group) || !str_eat(&p, " ") || !str_eat_u32(&p, INT32_MAX, &sid))
        return false;
    *ppid = (pid_t)parent;
    *session = (pid_t)sid;
    return true;
}

static bool procs_entry_pid(const struct dirent *d, pid_t *ret)
{
    const char *p = d->d_name;
    uint32_t n;

    if (!str_eat_u32(&p, INT32_MAX, &n) || *p != '\0')
        return false;
    *ret = (pid_t)n;
    return true;
}

uint32_t procs_count(void)
{
    DIR *dir = opendir("/proc");
    uint32_t n = 0;
    pid_t pid;

    if (!dir)
        return 0;
    for (struct dirent *d; (d = readdir(dir));)
        if (procs_entry_pid(d, &pid) && pid != getpid())
            n++;
    closedir(dir);
    return n;
}

struct census_process {
    pid_t pid, ppid, session;
    bool is_dead;
    bool in_tree; /* belongs to the tree */
    bool handled; /* was signalled in an earlier pass */
};

struct process_census {
    struct census_process *processes;
    size_t n, cap;
};

static void process_census_take(struct process_census *c)
{
    DIR *dir = opendir("/proc");

    c->n = 0;
    if (!dir)
        return;
    for (struct dirent *d; (d = readdir(dir));) {
        struct census_process m = { 0 };
        char path[300], text[512], state;

        if (!procs_entry_pid(d, &m.pid) || m.pid == getpid())
            continue;
        snprintf(path, sizeof(path), "%d/stat", (int)m.pid);
        if (fd_get_at(dirfd(dir), path, text, sizeof(text)) <= 0 ||
            !procs_parse_stat(text, &state, &m.ppid, &m.session))
            continue;
        m.is_dead = state == 'Z' || state == 'X';
        if (c->n == c->cap) {
            c->cap = c->cap ? 2 * c->cap : 64;
            c->processes = mem_resize(c->processes, c->cap, sizeof(*c->processes));
        }
        c->processes[c->n++] = m;
    }
    closedir(dir);
}

static const struct census_process *process_census_find(const struct process_census *c, pid_t pid)
{
    size_t lo = 0, hi = c->n; /* /proc lists by pid */

    while (lo < hi) {
        size_t mid = (lo + hi) / 2;

        if (c->processes[mid].pid == pid)
            return &c->processes[mid];
        if (c->processes[mid].pid < pid)
            lo = mid + 1;
        else
            hi = mid;
    }
    return NULL;
}

/* Marks processes of the tree until a complete round adds none; chains are short, so few rounds are
 * needed. */
static void process_census_mark_tree(struct process_census *c, const struct process_census *before, pid_t leader)
{
    for (bool grew = true; grew;) {
        grew = false;
        for (size_t i = 0; i < c->n; i++) {
            struct census_process *m = &c->processes[i];
            const struct census_process *parent = process_census_find(c, m->ppid);
            const struct census_process *old = process_census_find(before, m->pid);

            if (m->in_tree)
                continue;
            m->in_tree = m->pid == leader || m->session == leader || (parent && parent->in_tree) ||
                         (old && old->in_tree);
            m->handled = old && old->handled;
            grew = grew || m->in_tree;
        }
    }
}

void procs_signal_tree(pid_t leader, int signo)
{
    struct process_census now = { 0 }, before = { 0 };
    bool grew = true;

    for (int pass = 0; grew && pass < PASSES_MAX; pass++) {
        struct process_census t = before;

        before = now;
        now = t;
        process_census_take(&now);
        process_census_mark_tree(&now, &before, leader);
        grew = false;
        for (size_t i = 0; i < now.n; i++) {
            struct census_process *m = &now.processes[i];

            if (!m->in_tree || m->is_dead || m->handled)
                continue;
            m->handled = true;
            grew = signo == SIGKILL; /* any other signal is sent once, to the processes of the first pass */
            kill(m->pid, signo == SIGKILL ? SIGSTOP : signo);
        }
    }
    for (size_t i = 0; signo == SIGKILL && i < now.n; i++)
        if (now.processes[i].in_tree)
            kill(now.processes[i].pid, SIGKILL);
    free(now.processes);
    free(before.processes);
}
