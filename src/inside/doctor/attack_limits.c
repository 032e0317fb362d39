/* Each limit is tested until it answers, but at most up to four times its size: if it does not
 * hold, the test must not harm the host. */
#include "inside/doctor/attack.h"

#include "core/base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define ATTACK_LIMIT_FACTOR 4  /* how far beyond a limit an attack goes */
#define CHUNK 4096             /* bytes of one write */
#define ATTACK_CPU_PROCESSES 4 /* more than the processors of a small machine */
#define FILES_MAX 4096         /* maximum number of files in one attack */

static void attack_limit_pids(struct attack *a)
{
    uint64_t limit = attack_arg_u64("pids"), n = 0;
    pid_t kids[1024];
    int error = 0;

    while (n < limit * ATTACK_LIMIT_FACTOR && n < ARRAY_LEN(kids)) {
        pid_t pid = fork();

        if (pid == 0) {
            pause();
            _exit(0);
        }
        if (pid < 0) {
            error = errno;
            break;
        }
        kids[n++] = pid;
    }
    for (uint64_t i = 0; i < n; i++) {
        kill(kids[i], SIGKILL);
        waitpid(kids[i], NULL, 0);
    }
    if (error == EAGAIN && n <= limit)
        attack_held(a, "fork returned EAGAIN after %" PRIu64 " children, of %" PRIu64 " processes", n, limit);
    else
        attack_open(a, "%" PRIu64 " children were started, the limit is %" PRIu64 " (%s)", n, limit, strerror(error));
}

static void attack_limit_open_files(struct attack *a)
{
    uint64_t limit = attack_arg_u64("openFiles"), n = 0;
    int fd = 0;

    while (n < limit * ATTACK_LIMIT_FACTOR && (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        n++;
    if (fd < 0 && errno == EMFILE && n <= limit)
        attack_held(a, "open returned EMFILE after %" PRIu64 " files", n);
    else
        attack_open(a, "%" PRIu64 " files were opened, the limit is %" PRIu64, n, limit);
}

/* Writes until the kernel refuses. Returns the errno, or 0 if `max` bytes were accepted. */
static int attack_fill_file(const char *path, uint64_t max, uint64_t *taken)
{
    static const char chunk[CHUNK] = { 1 };
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    uint64_t n = 0;
    int error = 0;

    if (fd < 0)
        return errno;
    while (n < max && !error) {
        ssize_t done = write(fd, chunk, sizeof(chunk));

        if (done < 0)
            error = errno;
        else
            n += (uint64_t)done;
    }
    close(fd);
    *taken += n;
    return error;
}

static void attack_limit_file_size(struct attack *a)
{
    uint64_t limit = attack_arg_u64("fileSizeBytes"), n = 0;

    signal(SIGXFSZ, SIG_IGN);
    int error = attack_fill_file("/workspace/large", limit * ATTACK_LIMIT_FACTOR, &n);
    unlink("/workspace/large");
    if (error == EFBIG && n <= limit)
        attack_held(a, "write returned EFBIG after %" PRIu64 " bytes", n);
    else
        attack_open(a, "%" PRIu64 " bytes were written to one file, the limit is %" PRIu64 " (%s)", n, limit,
                    strerror(error));
}

/* Writes files of the maximum size until the file system is full. */
static void attack_limit_bytes(struct attack *a, const char *dir)
{
    uint64_t limit = attack_arg_u64(a->name), one = attack_arg_u64("fileSizeBytes"), n = 0;
    char path[64];
    int error = 0, files = 0;

    signal(SIGXFSZ, SIG_IGN);
    while (one && !error && n < limit * ATTACK_LIMIT_FACTOR) {
        snprintf(path, sizeof(path), "%s/full%d", dir, files++);
        error = attack_fill_file(path, one / 2, &n);
    }
    while (files-- > 0) {
        snprintf(path, sizeof(path), "%s/full%d", dir, files);
        unlink(path);
    }
    if (error == ENOSPC && n <= limit)
        attack_held(a, "write returned ENOSPC after %" PRIu64 " bytes", n);
    else
        attack_open(a, "%" PRIu64 " bytes were written to %s, the limit is %" PRIu64 " (%s)", n, dir, limit,
                    strerror(error));
}

static void attack_limit_inodes(struct attack *a, const char *dir)
{
    uint64_t limit = attack_arg_u64(a->name), n = 0;
    char path[64];
    int error = 0;

    while (n < limit * ATTACK_LIMIT_FACTOR && n < FILES_MAX) {
        snprintf(path, sizeof(path), "%s/many%" PRIu64, dir, n);
        if (mkdir(path, 0700) < 0) {
            error = errno;
            break;
        }
        n++;
    }
    for (uint64_t i = 0; i < n; i++) {
        snprintf(path, sizeof(path), "%s/many%" PRIu64, dir, i);
        rmdir(path);
    }
    if (error == ENOSPC && n <= limit)
        attack_held(a, "mkdir returned ENOSPC after %" PRIu64 " directories", n);
    else
        attack_open(a, "%" PRIu64 " directories were made in %s, the limit is %" PRIu64 " (%s)", n, dir, limit,
                    strerror(error));
}

static void attack_limit_workspace(struct attack *a)
{
    attack_limit_bytes(a, "/workspace");
}

static void workspace_inodes(struct attack *a)
{
    attack_limit_inodes(a, "/workspace");
}

static void attack_limit_tmp(struct attack *a)
{
    attack_limit_bytes(a, "/tmp");
}

static void tmp_inodes(struct attack *a)
{
    attack_limit_inodes(a, "/tmp");
}

static void attack_limit_shm(struct attack *a)
{
    attack_limit_bytes(a, "/dev/shm");
}

static struct attack attack_limit_table[] = {
    { "pids", attack_limit_pids },
    { "openFiles", attack_limit_open_files },
    { "fileSizeBytes", attack_limit_file_size },
    { "workspaceBytes", attack_limit_workspace },
    { "workspaceInodes", workspace_inodes },
    { "tmpBytes", attack_limit_tmp },
    { "tmpInodes", tmp_inodes },
    { "shmBytes", attack_limit_shm },
};

struct attack *attack_limits(size_t *count)
{
    *count = ARRAY_LEN(attack_limit_table);
    return attack_limit_table;
}

void attack_memory(void)
{
    uint64_t limit = attack_arg_u64("memoryBytes"), n = 0;

    while (n < limit * 2) {
        char *p = mmap(NULL, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED)
            break;
        memset(p, 1, MIB);
        n += MIB;
    }
    dprintf(STDOUT_FILENO, "memoryBytes\t%s\t%llu MiB were given to one process\n", n < limit * 2 ? "held" : "open",
            n / MIB);
}

void attack_cpu(void)
{
    for (int i = 1; i < ATTACK_CPU_PROCESSES; i++)
        if (fork() == 0)
            break;
    for (volatile uint64_t n = 0;; n++)
        ;
}

static void attack_io_rate(const char *name, int fd, bool writing)
{
    static _Alignas(CHUNK) char chunk[16 * CHUNK];
    uint64_t bytes = attack_arg_u64("rateBytes"), least = attack_arg_u64("rateMs"), n = 0, began = clock_mono_ns();

    while (n < bytes) {
        ssize_t done = writing ? pwrite(fd, chunk, sizeof(chunk), (off_t)n) : pread(fd, chunk, sizeof(chunk), (off_t)n);

        if (done <= 0)
            return; /* no result: the attack was not made */
        n += (uint64_t)done;
    }
    uint64_t ms = (clock_mono_ns() - began) / NS_PER_MS;
    dprintf(STDOUT_FILENO, "%s\t%s\t%llu KiB took %" PRIu64 " ms\n", name, ms >= least ? "held" : "open", n / KIB, ms);
}

void attack_io_rates(void)
{
    int fd = open("/workspace/rates", O_RDWR | O_DIRECT | O_CLOEXEC);

    attack_io_rate("ioWriteBytesPerSecond", fd, true);
    attack_io_rate("ioReadBytesPerSecond", fd, false);
    close(fd);
}

void attack_output(void)
{
    char line[] = "one of many lines of output that exceed the limit\n";

    for (uint64_t n = 0, most = attack_arg_u64("outputBytes") * ATTACK_LIMIT_FACTOR; n < most; n += sizeof(line) - 1)
        if (write(STDOUT_FILENO, line, sizeof(line) - 1) < 0)
            return;
}
