/* escape-probe [CASE|FAMILY...] - runs cases of the attack catalogue and prints "ID VERDICT
 * sentence" for each.
 *
 * Without arguments it runs every case that needs no special settings; RS cases and others that
 * need a small limit or a waiting host run only when named. A case that dies or hangs is BROKEN,
 * which the driver counts as a failure: a missing answer proves nothing. */
#include "probe.h"

#include <dirent.h>
#include <libgen.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <time.h>

#define CASE_SECONDS 40

static char canary_text[4096];
static pid_t main_pid;
static uint64_t first_fds;
static int first_beyond;
static char first_cwd[512];

static const struct {
    const char *family;
    const struct probe_case *cases;
    bool by_default;
} families[] = {
    { "NS", ns_cases, true }, { "PR", pr_cases, true },  { "SC", sc_cases, true },
    { "CP", cp_cases, true }, { "FS", fs_cases, true },  { "LK", lk_cases, true },
    { "NT", nt_cases, true }, { "RS", rs_cases, false }, { "TABLE", table_cases, false },
};

static void say(struct outcome *o, enum verdict v, const char *fmt, va_list ap)
{
    if (o->verdict == ESCAPED || (o->verdict == SKIPPED && v == HELD))
        return;
    o->verdict = v;
    vsnprintf(o->why, sizeof o->why, fmt, ap);
}

#define DEFINE_SAY(name, verdict)                      \
    void name(struct outcome *o, const char *fmt, ...) \
    {                                                  \
        va_list ap;                                    \
        va_start(ap, fmt);                             \
        say(o, verdict, fmt, ap);                      \
        va_end(ap);                                    \
    }
DEFINE_SAY(held, HELD)
DEFINE_SAY(escaped, ESCAPED)
DEFINE_SAY(skipped, SKIPPED)

void judge_refused(struct outcome *o, const char *what, long rc, int err, const int *expected)
{
    if (rc >= 0) {
        escaped(o, "%s succeeded (%ld)", what, rc);
        return;
    }
    for (; *expected; expected++)
        if (*expected == err) {
            held(o, "%s: %s", what, strerror(err));
            return;
        }
    escaped(o, "%s reached the kernel and answered %s", what, strerror(err));
}

void must_not_open(struct outcome *o, const char *path, int flags)
{
    int fd = open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);

    if (fd < 0) {
        held(o, "%s: %s", path, strerror(errno));
        return;
    }
    escaped(o, "%s was opened%s", path, (flags & O_ACCMODE) == O_RDONLY ? "" : " for writing");
    close(fd);
}

void must_be_empty(struct outcome *o, const char *path)
{
    char buf[256];
    ssize_t n = slurp(path, buf, sizeof buf);

    if (n > 0)
        escaped(o, "%s shows %zd bytes", path, n);
    else
        held(o, "%s is masked", path);
}

ssize_t slurp(const char *path, char *buf, size_t size)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    size_t have = 0;
    ssize_t n = -1;

    buf[0] = '\0';
    if (fd < 0)
        return -1;
    while (have < size - 1 && (n = read(fd, buf + have, size - 1 - have)) > 0)
        have += (size_t)n;
    close(fd);
    buf[have] = '\0';
    return n < 0 && have == 0 ? -1 : (ssize_t)have;
}

bool holds(const char *buf, ssize_t len, const char *word)
{
    return len > 0 && *word && memmem(buf, (size_t)len, word, strlen(word)) != NULL;
}

const char *canary(const char *name)
{
    static char value[512];
    size_t len = strlen(name);

    for (const char *line = canary_text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, name, len) == 0 && line[len] == '=') {
            snprintf(value, sizeof value, "%.*s", (int)strcspn(line + len + 1, "\n"), line + len + 1);
            return value;
        }
    return "";
}

long canary_number(const char *name, long otherwise)
{
    const char *text = canary(name);

    return *text ? strtol(text, NULL, 0) : otherwise;
}

pid_t probe_pid(void)
{
    return main_pid;
}

uint64_t inherited_fds(void)
{
    return first_fds;
}

int inherited_beyond(void)
{
    return first_beyond;
}

const char *start_directory(void)
{
    return first_cwd;
}

double now_s(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Records the initial state before the program opens descriptors of its own. */
static void look_around(const char *argv0)
{
    char program[512], path[600];

    for (int fd = 3; fd < 4096; fd++)
        if (fcntl(fd, F_GETFD) >= 0) {
            if (fd < 64)
                first_fds |= 1ull << fd;
            else if (!first_beyond)
                first_beyond = fd;
        }
    if (!getcwd(first_cwd, sizeof first_cwd))
        snprintf(first_cwd, sizeof first_cwd, "(%s)", strerror(errno));
    snprintf(program, sizeof program, "%s", argv0);
    snprintf(path, sizeof path, "%s/canary", dirname(program));
    slurp(path, canary_text, sizeof canary_text);
    main_pid = getpid();
}

static void run_case(const struct probe_case *c, struct outcome *shared)
{
    static const char *const names[] = { "BROKEN", "HELD", "ESCAPED", "SKIP" };
    int status = 0;

    memset(shared, 0, sizeof *shared);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(CASE_SECONDS * (unsigned)canary_number("slow", 1));
        c->run(shared);
        _exit(0);
    }
    if (pid < 0)
        snprintf(shared->why, sizeof shared->why, "fork: %s", strerror(errno));
    else {
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        if (shared->verdict == NO_VERDICT && WIFSIGNALED(status))
            snprintf(shared->why, sizeof shared->why, "ended by signal %d before it reported", WTERMSIG(status));
    }
    printf("%s %s %s\n", c->id, names[shared->verdict], shared->why);
    fflush(stdout);
}

static bool wanted(const char *id, const char *family, bool by_default, int argc, char **argv)
{
    if (argc < 2)
        return by_default;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], id) == 0 || strcmp(argv[i], family) == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    look_around(argv[0]);
    signal(SIGUSR1, SIG_IGN); /* PR07 sends it to every process */
    struct outcome *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 1;
    for (size_t f = 0; f < COUNT(families); f++)
        for (const struct probe_case *c = families[f].cases; c->id; c++)
            if (wanted(c->id, families[f].family, families[f].by_default, argc, argv))
                run_case(c, shared);
    puts("END");
    return 0;
}
