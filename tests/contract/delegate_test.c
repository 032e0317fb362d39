/* Where an unprivileged user's cgroup comes from, with the real cgroup v2 of the kernel and a fake
 * systemd of the user.
 *
 * Each scene is a process in its own mount namespace and cgroup:
 *
 *     cove-delegate-ID        top: the cgroup that the user may have been given
 *     cove-delegate-ID/mine   where the scene runs when it inspects its cgroup
 *
 * A hybrid host has no controllers in its v2 tree, so the files that list them are covered, in that
 * namespace only, by files with the contents of a v2-only host. Moves of processes are never
 * faked. */
#include "tests/support/fakebus.h"
#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/base/id.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "host/rootless/delegate.h"
#include "host/isolate/mountinfo.h"
#include "host/systemd/userbus.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

#define USER 1000u
#define PATIENCE_MS 20000

struct scene {
    char point[512]; /* mount point of cgroup2 */
    char top[600];   /* directories of the tree */
    char mine[640];
    char work[64]; /* a directory on the host: files that cover others, and the sockets of systemd */
    unsigned covers;
};

#define DEMAND(x)                                                                                          \
    do {                                                                                                   \
        if (!(x)) {                                                                                        \
            dprintf(STDERR_FILENO, "# %s:%d: failed: %s (%s)\n", __FILE__, __LINE__, #x, strerror(errno)); \
            _exit(1);                                                                                      \
        }                                                                                                  \
    } while (0)

/* --- the tree --- */

static bool find_point(struct scene *s)
{
    auto_free char *text = mem_alloc(1 << 20);
    const char *rest = text;
    struct mountinfo m;

    if (fd_get_at(AT_FDCWD, "/proc/self/mountinfo", text, 1 << 20) <= 0)
        return false;
    while (mountinfo_next(&rest, &m))
        if (str_eq(m.type, "cgroup2") && str_eq(m.root, "/"))
            return str_copy(s->point, sizeof(s->point), m.point);
    return false;
}

/* Ends the processes of a cgroup and removes it. */
static void wipe(const char *dir)
{
    DIR *d = opendir(dir);

    if (!d)
        return;
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_type == DT_DIR && e->d_name[0] != '.') {
            auto_free char *below = str_printf("%s/%s", dir, e->d_name);
            wipe(below);
        }
    (void)fd_put_at(dirfd(d), "cgroup.kill", "1");
    closedir(d);
    for (int ms = 0; ms < PATIENCE_MS && rmdir(dir) < 0 && errno == EBUSY; ms += 5)
        nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
}

/* --- steps of a scene --- */

static void cover(struct scene *s, const char *dir, const char *file, const char *text)
{
    auto_free char *ours = str_printf("%s/cover%u", s->work, s->covers++);
    auto_free char *theirs = str_printf("%s/%s", dir, file);
    auto_fd int fd = open(ours, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    DEMAND(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    DEMAND(mount(ours, theirs, NULL, MS_BIND, NULL) == 0);
}

/* Spaces in front: controller names that are written to enable them land there, and the list stays
 * as the kernel would keep it. */
#define HANDED_DOWN "                cpu memory pids\n"
#define OFFERED "cpu memory pids\n"

static void give_controllers(struct scene *s, const char *dir)
{
    cover(s, dir, "cgroup.controllers", OFFERED);
    cover(s, dir, "cgroup.subtree_control", HANDED_DOWN);
}

static void mark(const char *dir)
{
    DEMAND(setxattr(dir, "user.delegate", "1", 1, 0) == 0);
}

static void enter(const char *dir)
{
    auto_free char *procs = str_printf("%s/cgroup.procs", dir);

    DEMAND(fd_put_at(AT_FDCWD, procs, "0") == 0);
}

static bool lives_in(pid_t pid, const char *point, const char *dir)
{
    char path[64], text[4096], found[1024];

    snprintf(path, sizeof(path), "/proc/%d/cgroup", pid);
    DEMAND(fd_get_at(AT_FDCWD, path, text, sizeof(text)) > 0 && delegate_own_path(text, found, sizeof(found)));
    return str_eq(found, dir + strlen(point));
}

static bool is_empty(const char *dir)
{
    auto_free char *procs = str_printf("%s/cgroup.procs", dir);
    char text[64];

    return fd_get_at(AT_FDCWD, procs, text, sizeof(text)) == 0;
}

static pid_t helper(void)
{
    pid_t pid = fork();

    DEMAND(pid >= 0);
    while (pid == 0)
        pause();
    return pid;
}

/* Starts a process that is not a child of this one. Returns when it runs and has lost its
 * parent. */
static void stranger(void)
{
    int up[2];
    char byte;
    pid_t middle;

    DEMAND(pipe2(up, O_CLOEXEC) == 0);
    if ((middle = fork()) == 0) {
        pid_t parent = getpid();

        if (fork() != 0)
            _exit(0);
        while (getppid() == parent)
            nanosleep(&(struct timespec){ .tv_nsec = 1000000 }, NULL);
        DEMAND(write(up[1], "x", 1) == 1);
        for (;;)
            pause();
    }
    DEMAND(waitpid(middle, NULL, 0) == middle && read(up[0], &byte, 1) == 1);
}

/* Checks that `dir` is a tree in which leaves can be made, with the controllers that limits
 * need. */
static void must_be_forest(const struct cgroup_hierarchies *f, const char *dir)
{
    struct stat a, b;

    DEMAND(str_eq(f->kind, "v2") && f->ntrees == 1 && f->v2[0] && f->has_cgroup_kill);
    DEMAND(f->job[CGROUP_MEMORY] == 0 && f->job[CGROUP_PIDS] == 0 && f->job[CGROUP_CPU] == 0);
    DEMAND(f->job[CGROUP_FREEZE] == 0 && f->job[CGROUP_IO] == -1);
    DEMAND(fstat(f->trees[0], &a) == 0 && stat(dir, &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev);
}

static void must_be_none(const struct cgroup_hierarchies *f)
{
    DEMAND(str_eq(f->kind, "none") && f->ntrees == 0 && f->job[CGROUP_MEMORY] == -1);
}

/* --- a fake systemd --- */

enum manner { PROMPT, LATER, NEVER, REFUSING };

static uint32_t number_at(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

/* Moves the processes that the call names. */
static void move_named(const uint8_t *call, size_t len, const char *dir)
{
    auto_free char *procs = str_printf("%s/cgroup.procs", dir);
    const uint8_t *name = memmem(call, len, "PIDs\0\2au", 8);

    DEMAND(name);
    size_t at = ((size_t)(name - call) + 9 + 3) / 4 * 4;
    size_t n = number_at(call + at) / 4;
    DEMAND(n == 2);
    for (size_t i = 0; i < n; i++) {
        char text[16];

        snprintf(text, sizeof(text), "%u", number_at(call + at + 4 + 4 * i));
        DEMAND(fd_put_at(AT_FDCWD, procs, text) == 0);
    }
}

static NORETURN void serve(struct scene *s, int door, enum manner manner)
{
    uint8_t call[USERBUS_CALL_MAX], out[FAKEBUS_ANSWER_MAX];
    int fd = accept4(door, NULL, NULL, SOCK_CLOEXEC);

    DEMAND(fakebus_greet(fd, true));
    size_t len = fakebus_read_call(fd, call, sizeof(call));
    const char *name = len ? memmem(call, len, "cove-sc", 7) : NULL;
    DEMAND(name && memchr(name, '\0', 64));
    auto_free char *scope = str_printf("%s/%s", s->top, name);
    if (manner == PROMPT || manner == LATER) {
        DEMAND(mkdir(scope, 0755) == 0);
        s->covers = 100;
        give_controllers(s, scope);
    }
    if (manner == PROMPT)
        move_named(call, len, scope);
    size_t n = fakebus_answer(out, manner == REFUSING ? FAKEBUS_ERROR : FAKEBUS_RETURN, 2,
                              manner == REFUSING ? "org.freedesktop.systemd1.NoSuchUnit" : NULL);
    DEMAND(write(fd, out, n) == (ssize_t)n);
    if (manner == LATER)
        move_named(call, len, scope);
    for (;;)
        pause();
}

/* Runs outside of `mine`, like a real systemd. */
static void start_systemd(struct scene *s, enum manner manner)
{
    auto_free char *below = str_printf("%s/systemd", s->work);
    int door;

    DEMAND(mkdir(below, 0700) == 0 && (door = fakebus_listen(s->work, "systemd/private")) >= 0);
    setenv("XDG_RUNTIME_DIR", s->work, 1);
    if (fork() == 0)
        serve(s, door, manner);
    close(door);
}

/* --- around a scene --- */

static void play(void (*scene)(struct scene *s))
{
    struct scene s = { .work = "/tmp/cove-delegate-XXXXXX" };
    char id[ID_SIZE];
    int status;

    if (geteuid() != 0 || !find_point(&s))
        skip();
    id_new("sb", id);
    snprintf(s.top, sizeof(s.top), "%s/cove-delegate-%s", s.point, id + 2);
    snprintf(s.mine, sizeof(s.mine), "%s/mine", s.top);
    assert_non_null(mkdtemp(s.work));
    if (mkdir(s.top, 0755) < 0)
        skip();
    assert_int_equal(mkdir(s.mine, 0755), 0);
    pid_t pid = fork();
    if (pid == 0) {
        DEMAND(unshare(CLONE_NEWNS) == 0 && mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
        cover(&s, s.point, "cgroup.controllers", OFFERED);
        setenv("XDG_RUNTIME_DIR", "/nonexistent", 1);
        enter(s.top);
        scene(&s);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    wipe(s.top);
    assert_int_equal(access(s.top, F_OK), -1);
    auto_free char *clean = str_printf("rm -rf '%s'", s.work);
    assert_int_equal(system(clean), 0);
    assert_int_equal(status, 0);
}

/* --- scenes --- */

static void take_our_own(struct scene *s)
{
    auto_free char *host = str_printf("%s/host", s->mine);
    struct cgroup_hierarchies f;
    struct err err = { 0 };

    give_controllers(s, s->mine);
    mark(s->mine);
    enter(s->mine);
    pid_t spawner = helper();
    DEMAND(delegate_find_cgroup(&f, USER, spawner, &err) == 0);
    must_be_forest(&f, s->mine);
    DEMAND(is_empty(s->mine) && lives_in(getpid(), s->point, host) && lives_in(spawner, s->point, host));
}

TEST(a_delegated_cgroup_of_our_own_is_used_and_cleared)
{
    play(take_our_own);
}

static void take_where_nobody_marks(struct scene *s)
{
    struct cgroup_hierarchies f;
    struct err err = { 0 };

    give_controllers(s, s->mine);
    enter(s->mine);
    DEMAND(delegate_find_cgroup(&f, USER, 0, &err) == 0);
    must_be_forest(&f, s->mine);
}

TEST(without_systemd_a_writable_cgroup_is_enough)
{
    play(take_where_nobody_marks);
}

static void spare_strangers(struct scene *s)
{
    struct cgroup_hierarchies f;
    struct err err = { 0 };

    give_controllers(s, s->mine);
    mark(s->mine);
    enter(s->mine);
    stranger();
    DEMAND(delegate_find_cgroup(&f, USER, 0, &err) == -1 && err.id == ERR_NO_CGROUP);
    must_be_none(&f);
    DEMAND(lives_in(getpid(), s->point, s->mine));
}

TEST(a_cgroup_with_a_foreign_process_is_not_used)
{
    play(spare_strangers);
}

static void stand_beside(struct scene *s)
{
    auto_free char *leaf = str_printf("%s/sbaaaaaaaaaaaaaaaaaaaa", s->top);
    struct cgroup_hierarchies f;
    struct err err = { 0 };

    give_controllers(s, s->top);
    mark(s->top);
    enter(s->mine);
    stranger();
    DEMAND(mkdir(leaf, 0755) == 0);
    DEMAND(delegate_find_cgroup(&f, USER, 0, &err) == 0);
    must_be_forest(&f, s->top);
    DEMAND(lives_in(getpid(), s->point, s->mine)); /* no process has to move */
    DEMAND(access(leaf, F_OK) == 0);               /* another process may be about to use it */
}

TEST(a_delegated_parent_cgroup_is_shared_with_others)
{
    play(stand_beside);
}

static void find_scope(struct scene *s, pid_t spawner, const struct cgroup_hierarchies *f)
{
    char text[4096], own[1024];

    DEMAND(fd_get_at(AT_FDCWD, "/proc/self/cgroup", text, sizeof(text)) > 0 &&
           delegate_own_path(text, own, sizeof(own)));
    char *host = strstr(own, ".scope/host");
    DEMAND(host && str_ends(own, ".scope/host") && strstr(own, "/cove-sc"));
    auto_free char *leaf = str_printf("%s%s", s->point, own);
    DEMAND(lives_in(spawner, s->point, leaf));
    host[strlen(".scope")] = '\0';
    auto_free char *scope = str_printf("%s%s", s->point, own);
    must_be_forest(f, scope);
}

static void ask(struct scene *s, enum manner manner)
{
    struct cgroup_hierarchies f;
    struct err err = { 0 };

    start_systemd(s, manner);
    give_controllers(s, s->mine);
    enter(s->mine);
    stranger();
    pid_t spawner = helper();
    DEMAND(delegate_find_cgroup(&f, USER, spawner, &err) == 0);
    find_scope(s, spawner, &f);
}

static void ask_prompt(struct scene *s)
{
    ask(s, PROMPT);
}

static void ask_later(struct scene *s)
{
    ask(s, LATER);
}

TEST(the_users_systemd_is_asked_for_a_scope)
{
    play(ask_prompt);
}

TEST(a_scope_that_appears_after_the_answer_is_awaited)
{
    play(ask_later);
}

static void ask_in_vain(struct scene *s, enum manner manner, enum err_id why, const char *said)
{
    struct cgroup_hierarchies f;
    struct err err = { 0 };

    start_systemd(s, manner);
    enter(s->mine);
    pid_t spawner = helper();
    DEMAND(delegate_find_cgroup(&f, USER, spawner, &err) == -1);
    DEMAND(err.id == why && strstr(err.msg, said));
    must_be_none(&f);
    DEMAND(lives_in(getpid(), s->point, s->mine) && lives_in(spawner, s->point, s->mine));
}

static void be_refused(struct scene *s)
{
    ask_in_vain(s, REFUSING, ERR_DENIED, "NoSuchUnit");
}

static void be_forgotten(struct scene *s)
{
    ask_in_vain(s, NEVER, ERR_TIMEOUT, "made no scope");
}

TEST(a_systemd_that_refuses_is_quoted)
{
    play(be_refused);
}

TEST(waiting_for_a_systemd_that_does_nothing_times_out)
{
    play(be_forgotten);
}

static void find_nothing(struct scene *s)
{
    struct cgroup_hierarchies f;
    struct err err = { 0 };

    enter(s->mine);
    DEMAND(umount2(s->point, MNT_DETACH) == 0);
    DEMAND(delegate_find_cgroup(&f, USER, 0, &err) == -1 && err.id == ERR_NO_CGROUP &&
           strstr(err.msg, "no cgroup v2 tree"));
    must_be_none(&f);
}

TEST(a_host_without_cgroup_v2_says_so)
{
    play(find_nothing);
}

static void lack_controllers(struct scene *s)
{
    struct cgroup_hierarchies f;
    struct err err = { 0 };

    cover(s, s->mine, "cgroup.controllers", OFFERED);
    /* Memory cannot be enabled for children. */
    cover(s, s->mine, "cgroup.subtree_control", "                cpu pids\n");
    mark(s->mine);
    enter(s->mine);
    DEMAND(delegate_find_cgroup(&f, USER, 0, &err) == -1 && err.id == ERR_NO_CGROUP && strstr(err.msg, "for memory"));
    must_be_none(&f);
}

TEST(a_controller_that_cannot_be_handed_down_is_named)
{
    play(lack_controllers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_delegated_cgroup_of_our_own_is_used_and_cleared),
        RUN(without_systemd_a_writable_cgroup_is_enough),
        RUN(a_cgroup_with_a_foreign_process_is_not_used),
        RUN(a_delegated_parent_cgroup_is_shared_with_others),
        RUN(the_users_systemd_is_asked_for_a_scope),
        RUN(a_scope_that_appears_after_the_answer_is_awaited),
        RUN(a_systemd_that_refuses_is_quoted),
        RUN(waiting_for_a_systemd_that_does_nothing_times_out),
        RUN(a_host_without_cgroup_v2_says_so),
        RUN(a_controller_that_cannot_be_handed_down_is_named),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
