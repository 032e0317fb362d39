/* An unprivileged process brings a fork of itself into a sandbox: because it owns the user
 * namespace, with every wall, and without depending on the sandbox it enters. */
#include "jail_host.h"

#include "host/zygote/join.h"

#include <errno.h>
#include <grp.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>

struct scene {
    struct host h;
    struct reply r;
    char id[ID_SIZE];
    pid_t pid1;  /* in our pid namespace */
    uid_t owner; /* of its user namespace */
    struct native_template t;
    struct native_spec spec;
    int kernel[2], out[2];
    struct join_request join;
};

static pid_t pid_of(int pidfd)
{
    char path[64], line[64];
    int pid = -1;

    snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof(line), f) && sscanf(line, "Pid: %d", &pid) != 1)
        ;
    fclose(f);
    assert_true(pid > 0);
    return pid;
}

static uid_t owner_of(pid_t pid)
{
    char path[64];
    uid_t owner = 0;

    snprintf(path, sizeof(path), "/proc/%d/ns/user", pid);
    auto_fd int ns = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(ns >= 0);
    assert_int_equal(ioctl(ns, NS_GET_OWNER_UID, &owner), 0);
    assert_true(owner >= NATIVE_UID_OWNER);
    return owner;
}

static void tell_failure(int kernel, const struct err *err)
{
    dprintf(kernel, "failed: %s\n", err->msg);
}

static void open_leaves(struct scene *s)
{
    struct cgroup_entry *c = &s->spec.cgroup;
    DIR *d = opendir("/sys/fs/cgroup");
    char path[600];

    c->v2_dir = -1;
    for (struct dirent *e; d && (e = readdir(d)) && c->nprocs < CGROUP_TREES;) {
        snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/%s/%s/cgroup.procs", e->d_name, cgroup_parent(), s->id);
        if ((c->procs[c->nprocs] = open(path, O_WRONLY | O_CLOEXEC)) >= 0)
            c->nprocs++;
    }
    closedir(d);
    snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/%s/cgroup.procs", cgroup_parent(), s->id);
    if ((c->procs[c->nprocs] = open(path, O_WRONLY | O_CLOEXEC)) >= 0)
        c->nprocs++;
    assert_true(c->nprocs > 0);
}

static void scene_begin(struct scene *s, bool joinable)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct jail_template t = { .name = "t", .profile = PROFILE_BASE, .joinable = joinable };
    struct filter_spec calls = { .profile = PROFILE_BASE };
    struct jail_create c = a_request();
    struct err err = { 0 };

    *s = (struct scene){ 0 };
    host_start(&s->h);
    send_frame(&s->h, FRAME_J_TEMPLATE, out, jail_template_encode(&t, out, NULL), NULL, 0);
    expect(&s->h, FRAME_J_OK);
    ask_create(&s->h, &c, NULL, 0);
    answer_of(&s->h, &s->r);
    assert_int_equal(s->r.f.type, FRAME_J_CREATED);
    memcpy(s->id, c.id, ID_SIZE);
    greet(s->r.fds[0]);
    s->pid1 = pid_of(s->r.fds[1]);
    s->owner = owner_of(s->pid1);
    s->t.monitor = -1;
    s->t.calls = calls;
    assert_int_equal(filter_build(&calls, false, s->t.filter.prog, &s->t.filter.len, &err), 0);
    limits_default(&s->spec.limits);
    memcpy(s->spec.id, s->id, ID_SIZE);
    s->spec.report_failure = tell_failure;
    open_leaves(s);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, s->kernel), 0);
    assert_int_equal(pipe2(s->out, O_CLOEXEC), 0);
    s->join = (struct join_request){ .template = &s->t,
                                     .spec = &s->spec,
                                     .pidfd = s->r.fds[1],
                                     .kernel = s->kernel[1],
                                     .out = s->out[1],
                                     .err_out = s->out[1],
                                     .monitor = -1 };
}

static void scene_end(struct scene *s)
{
    for (size_t i = 0; i < s->spec.cgroup.nprocs; i++)
        close(s->spec.cgroup.procs[i]);
    close(s->kernel[0]);
    close(s->out[0]);
    drop_fds(&s->r);
    host_stop(&s->h);
    assert_int_equal(leaves(s->id), 0);
}

/* Writes what the interpreter sees, as lines of "name value". */
static NORETURN void look_around(void)
{
    static const char *const spaces[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };
    char line[256], path[64];
    FILE *f = fopen("/proc/self/status", "re");

    while (getppid() != 1) /* the process that brought it in may not have ended yet */
        usleep(1000);
    dprintf(3, "uid %d %d\nppid %d\n", (int)getuid(), (int)getgid(), (int)getppid());
    while (f && fgets(line, sizeof(line), f))
        if (strncmp(line, "Cap", 3) == 0 || strncmp(line, "Seccomp:", 8) == 0 || strncmp(line, "NoNewPrivs", 10) == 0 ||
            strncmp(line, "Groups", 6) == 0)
            dprintf(3, "%s", line);
    fclose(f);
    for (size_t i = 0; i < ARRAY_LEN(spaces); i++) {
        snprintf(path, sizeof(path), "/proc/self/ns/%s", spaces[i]);
        ssize_t n = readlink(path, line, sizeof(line) - 1);
        dprintf(3, "%.*s\n", n > 0 ? (int)n : 0, line);
    }
    dprintf(3, "cwd %s\nmount %d\nopen", getcwd(line, sizeof(line)), mount("a", "/tmp", "tmpfs", 0, NULL));
    for (int fd = 0; fd < 64; fd++)
        if (fcntl(fd, F_GETFD) >= 0)
            dprintf(3, " %d", fd);
    f = fopen("/proc/self/cgroup", "re");
    while (f && fgets(line, sizeof(line), f))
        dprintf(3, "\ncgroup %s", strrchr(line, ':'));
    printf("and this is standard output\n");
    fflush(stdout);
    _exit(0);
}

/* The zygote of this test: it joins without privilege and reports the result. */
static int join_as(struct scene *s, uid_t uid)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        struct err err = { 0 };

        alarm(60);
        if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0 ||
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
            _exit(100);
        int rc = join_fork(&s->join, &err);
        if (rc == 1)
            look_around();
        _exit(rc == 0 ? 0 : err.id == ERR_LOST ? 3 : err.sys == EPERM ? 2 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    close(s->kernel[1]);
    close(s->out[1]);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void read_all(int fd, char *text, size_t cap)
{
    size_t len = 0;

    while (len < cap - 1 && readable_within(fd, 20000)) {
        ssize_t n = read(fd, text + len, cap - 1 - len);

        if (n <= 0)
            break;
        len += (size_t)n;
    }
    text[len] = '\0';
}

static void must_say(const char *text, const char *what)
{
    if (!strstr(text, what))
        fail_msg("no '%s' in:\n%s", what, text);
}

TEST(a_joined_interpreter_has_every_wall)
{
    static const char *const spaces[] = { "user", "mnt", "pid", "net", "ipc", "uts", "cgroup" };
    struct scene s;
    char text[8192], path[64], link[64];

    scene_begin(&s, true);
    assert_int_equal(join_as(&s, s.owner), 0);
    read_all(s.kernel[0], text, sizeof(text));
    must_say(text, "uid 1000 1000\nppid 1\n");
    must_say(text, "Groups:\t \n");
    must_say(text, "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\n"
                   "CapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\n");
    must_say(text, "NoNewPrivs:\t1\nSeccomp:\t2\n");
    must_say(text, "cwd /workspace\nmount -1\nopen 0 1 2 3\n");
    must_say(text, "cgroup :/\n");
    assert_null(strstr(text, s.id)); /* no line of /proc/self/cgroup shows the host's path */
    for (size_t i = 0; i < ARRAY_LEN(spaces); i++) {
        snprintf(path, sizeof(path), "/proc/%d/ns/%s", s.pid1, spaces[i]);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        assert_true(n > 0);
        link[n] = '\0';
        must_say(text, link);
    }
    read_all(s.out[0], text, sizeof(text));
    assert_string_equal(text, "and this is standard output\n");
    scene_end(&s);
}

TEST(a_foreign_process_cannot_join)
{
    struct scene s;

    scene_begin(&s, true);
    assert_int_equal(join_as(&s, s.owner + 1), 2);
    scene_end(&s);
}

/* The network namespace of the others has no owner in this user namespace. */
TEST(sandboxes_not_prepared_for_a_zygote_cannot_be_joined)
{
    struct scene s;

    scene_begin(&s, false);
    assert_int_equal(join_as(&s, s.owner), 2);
    scene_end(&s);
}

TEST(joining_an_ended_sandbox_fails_without_ending_the_zygote)
{
    struct scene s;

    scene_begin(&s, true);
    ask(&s.h, FRAME_J_KILL, s.id);
    expect(&s.h, FRAME_J_OK);
    assert_int_equal(join_as(&s, s.owner), 3);
    scene_end(&s);
}

TEST(a_frozen_sandbox_does_not_block_the_zygote)
{
    struct scene s;
    char text[8192];

    scene_begin(&s, true);
    ask(&s.h, FRAME_J_FREEZE, s.id);
    expect(&s.h, FRAME_J_OK);
    assert_int_equal(join_as(&s, s.owner), 0);
    assert_false(readable_within(s.kernel[0], 200));
    ask(&s.h, FRAME_J_THAW, s.id);
    expect(&s.h, FRAME_J_OK);
    read_all(s.kernel[0], text, sizeof(text));
    must_say(text, "uid 1000 1000\nppid 1\n");
    scene_end(&s);
}

/* A wall that cannot be raised ends the interpreter and is reported. */
TEST(a_missing_wall_ends_the_interpreter_before_it_runs)
{
    struct scene s;
    char text[8192];

    scene_begin(&s, true);
    s.t.filter.len = 0;
    assert_int_equal(join_as(&s, s.owner), 0);
    read_all(s.kernel[0], text, sizeof(text));
    assert_true(str_starts(text, "failed: system call filter"));
    assert_null(strstr(text, "uid"));
    scene_end(&s);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_joined_interpreter_has_every_wall, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_foreign_process_cannot_join, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sandboxes_not_prepared_for_a_zygote_cannot_be_joined, set_up, tear_down),
        cmocka_unit_test_setup_teardown(joining_an_ended_sandbox_fails_without_ending_the_zygote, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_frozen_sandbox_does_not_block_the_zygote, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_missing_wall_ends_the_interpreter_before_it_runs, set_up, tear_down),
    };

    if (geteuid() != 0) {
        puts("1..0 # SKIP needs root");
        return 0;
    }
    return cmocka_run_group_tests_name("joining a sandbox", tests, NULL, NULL);
}
