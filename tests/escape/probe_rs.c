/* RS: resources. Each case allocates until it is refused and judges where that happened; a case
 * that a limit ends reports nothing, and the driver judges exit status and receipt. Everything
 * is bounded, so that a missing limit shows as ESCAPED and does not harm the host. */
#include "probe.h"

#include <dirent.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>

#define MIB (1024l * 1024)

static void rs01(struct outcome *o)
{
    static pid_t children[8192];
    long limit = canary_number("pids", 64), born = 0;
    int why = 0;

    while (born < (long)COUNT(children)) {
        pid_t pid = fork();
        if (pid == 0) {
            pause();
            _exit(0);
        }
        if (pid < 0) {
            why = errno;
            break;
        }
        children[born++] = pid;
    }
    for (long i = 0; i < born; i++)
        kill(children[i], SIGKILL);
    for (long i = 0; i < born; i++)
        waitpid(children[i], NULL, 0);
    if (born > limit || why != EAGAIN)
        escaped(o, "%ld processes with a limit of %ld: %s", born, limit, strerror(why));
    held(o, "%ld processes, then %s", born, strerror(why));
}

static void rs02(struct outcome *o)
{
    long limit = canary_number("nofile", 1024), n = 0;

    while (n < 70000 && dup(2) >= 0)
        n++;
    int why = errno;
    for (int fd = 3; fd < n + 3; fd++)
        close(fd);
    if (n > limit || why != EMFILE)
        escaped(o, "%ld descriptors with a limit of %ld: %s", n, limit, strerror(why));
    held(o, "%ld descriptors, then %s", n, strerror(why));
}

/* Writes to a file until refused, at most `max` bytes; returns the number of bytes. */
static long fill(const char *path, long max, int *why)
{
    static char block[65536];
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    long done = 0;

    signal(SIGXFSZ, SIG_IGN);
    memset(block, 'x', sizeof block);
    *why = fd < 0 ? errno : 0;
    while (fd >= 0 && done < max) {
        ssize_t n = write(fd, block, sizeof block);
        if (n <= 0) {
            *why = errno;
            break;
        }
        done += n;
    }
    if (fd >= 0)
        close(fd);
    unlink(path);
    return done;
}

static void must_fill_up(struct outcome *o, const char *path, const char *limit_name)
{
    long limit = canary_number(limit_name, 0);
    int why = 0;
    long done = fill(path, limit + 64 * MIB, &why);

    if (done > limit || (why != ENOSPC && why != EFBIG))
        escaped(o, "%s took %ld bytes with a limit of %ld: %s", path, done, limit, strerror(why));
    held(o, "%s: %ld of %ld bytes, then %s", path, done, limit, strerror(why));
}

static void rs03(struct outcome *o)
{
    must_fill_up(o, "/tmp/rs03", "tmp_bytes");
    must_fill_up(o, "/workspace/rs03", "workspace_bytes");
}

static void rs04(struct outcome *o)
{
    must_fill_up(o, "/dev/shm/rs04", "shm_bytes");
}

static void must_run_out(struct outcome *o, const char *where, long limit)
{
    long n = 0;
    char path[128];

    for (; n < limit + 5000; n++) {
        snprintf(path, sizeof path, "%s/inode%ld", where, n);
        int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0)
            break;
        close(fd);
    }
    int why = errno;
    for (long i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/inode%ld", where, i);
        unlink(path);
    }
    if (n > limit || why != ENOSPC)
        escaped(o, "%s took %ld files with a limit of %ld: %s", where, n, limit, strerror(why));
    held(o, "%s: %ld files, then %s", where, n, strerror(why));
}

static void rs05(struct outcome *o)
{
    must_run_out(o, "/tmp", canary_number("tmp_inodes", 8192));
    must_run_out(o, "/workspace", canary_number("workspace_inodes", 16384));
}

/* The driver reads the CPU time from the receipt and compares it with the quota. */
static void rs06(struct outcome *o)
{
    double end = now_s() + 2;
    pid_t pids[4];

    for (int i = 0; i < 4; i++) {
        pids[i] = fork();
        if (pids[i] == 0) {
            while (now_s() < end)
                ;
            _exit(0);
        }
    }
    for (int i = 0; i < 4; i++)
        waitpid(pids[i], NULL, 0);
    held(o, "four processes were busy for two seconds");
}

static void touch(long bytes)
{
    char *p = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        return;
    for (long i = 0; i < bytes; i += 4096)
        p[i] = 1;
}

static void rs07(struct outcome *o)
{
    long limit = canary_number("memory", 64 * MIB);

    touch(limit * 2);
    escaped(o, "%ld bytes were touched with a limit of %ld", limit * 2, limit);
}

static void rs08(struct outcome *o)
{
    char *p = mmap(NULL, 128 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    REFUSED(o, "mlock(128 MiB)", mlock(p, 128 * MIB), ENOMEM, EPERM, EAGAIN);
    REFUSED(o, "mlockall", mlockall(MCL_CURRENT | MCL_FUTURE), ENOMEM, EPERM);
}

/* Never returns: the driver's timeout ends it. */
static void rs09(struct outcome *o)
{
    (void)o;
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    for (;;) {
        pid_t pid = fork();
        if (pid == 0) {
            setsid();
            if (fork() > 0)
                _exit(0);
        }
    }
}

/* --- RS10: memory by other mechanisms. One mechanism per run, named by the driver. --- */

static void road_tmpfs(long limit)
{
    static const char *const places[] = { "/workspace/road", "/tmp/road", "/dev/shm/road" };
    static char block[1 << 20];

    memset(block, 1, sizeof block);
    for (size_t i = 0; i < COUNT(places); i++) {
        int fd = open(places[i], O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        for (long done = 0; fd >= 0 && done < limit * 2; done += (long)sizeof block)
            if (write(fd, block, sizeof block) <= 0)
                break;
    }
    touch(limit); /* the rest must be less than the whole limit */
}

static void road_memfd(long limit)
{
    for (long done = 0; done < limit * 2; done += 8 * MIB) {
        int fd = (int)syscall(SYS_memfd_create, "road", 0);
        static char block[8 * 1024 * 1024];
        memset(block, 1, sizeof block);
        if (fd < 0 || write(fd, block, sizeof block) <= 0)
            return;
    }
}

static void road_pipes(long limit)
{
    static char block[65536];

    for (long done = 0; done < limit * 2; done += 65536) {
        int ends[2];
        if (pipe2(ends, O_NONBLOCK) < 0 || write(ends[1], block, sizeof block) <= 0)
            return;
    }
}

static void road_sockets(long limit)
{
    static char block[65536];

    for (long done = 0; done < limit * 2;) {
        int ends[2];
        ssize_t n;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) < 0)
            return;
        while ((n = write(ends[0], block, sizeof block)) > 0)
            done += n;
    }
}

static void road_sysv(long limit)
{
    for (long done = 0; done < limit * 2; done += 8 * MIB) {
        int id = shmget(IPC_PRIVATE, 8 * MIB, IPC_CREAT | 0600);
        char *p = id < 0 ? (void *)-1 : shmat(id, NULL, 0);
        if (p == (void *)-1)
            return;
        memset(p, 1, 8 * MIB);
    }
}

static void road_mappings(long limit)
{
    /* A page table for every 2 MiB: 4 KiB of kernel memory for each touched page. */
    long n = limit * 2 / 8192;
    char *p = mmap(NULL, (size_t)n * 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                   0);

    if (p == MAP_FAILED)
        return;
    madvise(p, (size_t)n * 2 * MIB, MADV_NOHUGEPAGE);
    for (long i = 0; i < n; i++)
        p[i * 2 * MIB] = 1;
}

static void road_epoll(long limit)
{
    int pipes[2], count = 0, slow = (int)canary_number("slow", 1);

    if (pipe(pipes) < 0)
        return;
    for (;;) {
        int ep = epoll_create1(0);
        struct epoll_event ev = { .events = EPOLLIN };
        if (ep < 0)
            return;
        for (int fd = 3; fd < ep; fd += slow)
            epoll_ctl(ep, EPOLL_CTL_ADD, fd, &ev);
        if (++count > limit / 1024)
            return;
    }
}

static void rs10(struct outcome *o)
{
    static const struct {
        const char *name;
        void (*go)(long limit);
    } roads[] = { { "tmpfs", road_tmpfs },     { "memfd", road_memfd }, { "pipes", road_pipes },
                  { "sockets", road_sockets }, { "sysv", road_sysv },   { "mappings", road_mappings },
                  { "epoll", road_epoll } };
    const char *road = canary("road");

    for (size_t i = 0; i < COUNT(roads); i++)
        if (strcmp(roads[i].name, road) == 0)
            roads[i].go(canary_number("memory", 64 * MIB));
    held(o, "%s: refused before the memory limit", canary("road"));
}

static void rs14(struct outcome *o)
{
    (void)o;
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    for (;;)
        pause();
}

static void rs15(struct outcome *o)
{
    (void)o;
    for (int s = 1; s < 65; s++)
        signal(s, SIG_IGN);
    for (int i = 0; i < 8; i++) {
        pid_t pid = fork();
        if (pid == 0 && i % 2)
            raise(SIGSTOP);
        if (pid == 0 && i == 2) {
            /* The parent of a vfork sleeps until its child has ended. */
            if (vfork() == 0)
                for (;;)
                    pause();
        }
        if (pid == 0)
            for (;;)
                pause();
    }
    for (;;)
        pause();
}

/* Leaves daemons behind and ends; the driver searches for them on the host. */
static void rs16(struct outcome *o)
{
    for (int i = 0; i < 10; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            setsid();
            if (fork() > 0)
                _exit(0);
            for (int fd = 0; fd < 64; fd++)
                close(fd);
            for (int s = 1; s < 32; s++)
                signal(s, SIG_IGN);
            for (;;)
                sleep(1000);
        }
        waitpid(pid, NULL, 0);
    }
    held(o, "ten daemons were started and left");
}

static int count_zombies(void)
{
    DIR *dir = opendir("/proc");
    struct dirent *entry;
    int n = 0;

    while (dir && (entry = readdir(dir))) {
        char path[300], buf[512];
        snprintf(path, sizeof path, "/proc/%s/stat", entry->d_name);
        if (atoi(entry->d_name) > 0 && slurp(path, buf, sizeof buf) > 0) {
            char *end = strrchr(buf, ')');
            n += end && end[2] == 'Z';
        }
    }
    if (dir)
        closedir(dir);
    return n;
}

static void rs17(struct outcome *o)
{
    int slow = (int)canary_number("slow", 1), born = 0;

    for (; born < 10000 / slow; born++) {
        pid_t pid = fork();
        if (pid == 0) {
            /* The grandchild becomes a child of PID 1. */
            pid_t grandchild = fork();
            _exit(grandchild < 0);
        }
        int status = 0;
        if (pid < 0)
            usleep(1000);
        else
            waitpid(pid, &status, 0);
    }
    for (int i = 0; i < 50 * slow && count_zombies() > 0; i++)
        usleep(20000);
    int left = count_zombies();
    if (left)
        escaped(o, "%d zombies are left of %d orphans", left, born);
    held(o, "%d orphans, no zombie left", born);
}

static void rs19(struct outcome *o)
{
    long timers = 0, watches = 0, descriptors = 0;
    timer_t id;
    struct sigevent ev = { .sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR2 };

    while (timers < 200000 && timer_create(CLOCK_MONOTONIC, &ev, &id) == 0)
        timers++;
    while (descriptors < 70000 && eventfd(0, 0) >= 0)
        descriptors++;
    close(3); /* every descriptor is in use by now */
    int in = inotify_init1(0);
    while (in >= 0 && watches < 200000) {
        char path[64];
        snprintf(path, sizeof path, "/tmp/w%ld", watches);
        if (mkdir(path, 0700) < 0 || inotify_add_watch(in, path, IN_CREATE) < 0)
            break;
        watches++;
    }
    if (timers >= 200000 || descriptors >= 70000)
        escaped(o, "%ld timers and %ld eventfds without a limit", timers, descriptors);
    held(o, "%ld timers, %ld eventfds, %ld watches, then refused", timers, descriptors, watches);
}

static void rs21(struct outcome *o)
{
    double end = now_s() + 2;
    long rounds = 0;

    while (now_s() < end) {
        int fd = open("/workspace/a", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        if (fd < 0 || write(fd, "x", 1) < 0 || fsync(fd) < 0)
            break;
        close(fd);
        rename("/workspace/a", "/workspace/b");
        rounds++;
    }
    sync();
    held(o, "%ld rounds of fsync and rename in two seconds, all in memory that is charged", rounds);
}

/* Never returns: forks as fast as it can until the driver's timeout kills it. */
static void rs22(struct outcome *o)
{
    (void)o;
    for (;;) {
        pid_t pid = fork();
        if (pid == 0) {
            fork();
            _exit(0);
        }
        waitpid(-1, NULL, WNOHANG);
    }
}

static void rs23(struct outcome *o)
{
    long n = 0;

    for (; n < 1 << 20; n++) {
        /* Alternating protections keep adjacent mappings from being merged. */
        void *p = mmap(NULL, 4096, n % 2 ? PROT_READ : PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            break;
    }
    if (n >= 1 << 20)
        escaped(o, "2^20 mappings were created");
    held(o, "%ld mappings, then %s", n, strerror(errno));
}

/* Takes all inotify instances that it can get and holds them; meanwhile the driver requests one
 * in another sandbox. */
static void rs25(struct outcome *o)
{
    long n = 0, terminals = 0;

    while (terminals < 1000 && open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC) >= 0)
        terminals++;
    if (terminals == 0 || terminals > 100)
        escaped(o, "%ld terminals of the few thousand that all sandboxes share", terminals);
    syscall(SYS_close_range, 3, ~0u, 0);
    while (n < 5000 && inotify_init1(IN_CLOEXEC) >= 0)
        n++;
    if (n == 0)
        escaped(o, "not one inotify instance: another sandbox holds them all");
    held(o, "%ld terminals and %ld inotify instances, then %s", terminals, n, strerror(errno));
    if (canary_number("hold", 0))
        sleep(3);
}

static void rs26(struct outcome *o)
{
    static const char *const hierarchies[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/memory", "/sys/fs/cgroup/pids",
                                               "/sys/fs/cgroup/unified", "/cgroup" };

    for (size_t i = 0; i < COUNT(hierarchies); i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/nested", hierarchies[i]);
        if (mkdir(path, 0700) == 0)
            escaped(o, "%s was made", path);
    }
    held(o, "no cgroup can be created inside");
}

/* Kills, stops and signals every process, including PID 1, then exits with its own status; the
 * driver checks that status. */
static void lc01(struct outcome *o)
{
    kill(1, SIGKILL);
    kill(1, SIGSTOP);
    kill(1, SIGTERM);
    kill(1, SIGINT);
    syscall(434, 1, 0);
    usleep(100000);
    if (kill(1, 0) < 0 && errno == ESRCH)
        escaped(o, "PID 1 is gone");
    held(o, "PID 1 goes on");
}

const struct probe_case rs_cases[] = {
    { "RS01", rs01 }, { "RS02", rs02 }, { "RS03", rs03 }, { "RS04", rs04 }, { "RS05", rs05 }, { "RS06", rs06 },
    { "RS07", rs07 }, { "RS08", rs08 }, { "RS09", rs09 }, { "RS10", rs10 }, { "RS14", rs14 }, { "RS15", rs15 },
    { "RS16", rs16 }, { "RS17", rs17 }, { "RS19", rs19 }, { "RS21", rs21 }, { "RS22", rs22 }, { "RS23", rs23 },
    { "RS25", rs25 }, { "RS26", rs26 }, { "LC01", lc01 }, { NULL, NULL },
};
