/* The jailer as its client sees it: real requests over its socket, real sandboxes. It must never
 * trust a field, answer twice, or leave anything. */
#include "jail_host.h"

#include "core/base/mem.h"
#include "host/isolate/mountinfo.h"
#include "host/jailer/sweep.h"

#include <errno.h>
#include <sys/mount.h>
#include <sys/un.h>
#include <time.h>

TEST(destroying_returns_counters_and_removes_every_leaf)
{
    struct host h;
    struct reply r, d;
    struct jail_stats s;
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    assert_true(leaves(id) > 0);
    ask(&h, FRAME_J_DESTROY, id);
    answer_of(&h, &d);
    assert_int_equal(d.f.type, FRAME_DONE);
    assert_int_equal(jail_stats_decode(&d.f, &s, NULL), 0);
    assert_true(s.cpu_ns > 0 && s.cpu_ns != JAIL_UNKNOWN && s.pids == 0);
    assert_true(readable_within(r.fds[1], 0)); /* the pidfd: the sandbox is dead before the answer */
    drop_fds(&r);
    ask(&h, FRAME_J_STATS, id);
    expect_error(&h, ERR_MISSING);
    host_stop(&h);
    assert_int_equal(leaves(id), 0);
}

TEST(the_sandboxes_of_a_disconnected_client_end)
{
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    host_stop(&h);
    assert_true(readable_within(r.fds[1], 5000));
    drop_fds(&r);
    assert_int_equal(leaves(id), 0);
}

TEST(a_killed_jailer_leaves_no_process_and_the_next_one_cleans_up)
{
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    kill(h.jailer, SIGKILL);
    assert_true(readable_within(r.fds[1], 5000));
    drop_fds(&r);
    close(h.sock);
    waitpid(h.jailer, NULL, 0);
    assert_true(leaves(id) > 0);
    host_start(&h);
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    host_stop(&h);
    assert_int_equal(leaves(id), 0);
}

TEST(the_next_jailer_does_not_touch_live_sandboxes)
{
    struct host h, other;
    struct reply r;
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    host_start(&other);
    ask_template(&other, "t");
    expect(&other, FRAME_J_OK);
    assert_true(leaves(id) > 0);
    assert_false(readable_within(r.fds[1], 0));
    host_stop(&other);
    drop_fds(&r);
    host_stop(&h);
}

TEST(a_jailer_with_another_state_directory_sees_live_sandboxes_too)
{
    struct host h, other;
    struct reply r;
    char id[ID_SIZE], first[sizeof(state_dir)], second[] = "/run/cove-test-XXXXXX";

    one_sandbox(&h, id, &r);
    memcpy(first, state_dir, sizeof(first));
    assert_non_null(mkdtemp(second));
    assert_true(str_copy(state_dir, sizeof(state_dir), second));
    host_start(&other);
    ask_template(&other, "t");
    expect(&other, FRAME_J_OK);
    assert_true(leaves(id) > 0);
    assert_false(readable_within(r.fds[1], 0));
    host_stop(&other);
    assert_int_equal(rmdir(second), 0);
    memcpy(state_dir, first, sizeof(first));
    drop_fds(&r);
    host_stop(&h);
}

/* Sets the variable for jailers that are started from now on; NULL removes it. */
static void set_parent(const char *name)
{
    assert_int_equal(name ? setenv("COVE_CGROUP_PARENT", name, 1) : unsetenv("COVE_CGROUP_PARENT"), 0);
}

TEST(another_cgroup_parent_holds_the_leaves_and_shares_the_uids_of_the_host)
{
    auto_free char *before = getenv("COVE_CGROUP_PARENT") ? str_dup(getenv("COVE_CGROUP_PARENT")) : NULL;
    auto_free char *mountinfo = mountinfo_read();
    struct cgroup_hierarchies forest;
    struct uids uids = { .fd = -1 };
    struct err err = { 0 };
    struct host h, other;
    struct reply r;
    struct stat st;
    char id[ID_SIZE], name[32];

    snprintf(name, sizeof(name), "cove-test-%d", (int)getpid());
    set_parent(name);
    one_sandbox(&h, id, &r);
    assert_true(leaves(id) > 0);
    assert_int_equal(cgroup_find_hierarchies(&forest, mountinfo, name, false, &err), 0);
    assert_int_equal(fstatat(forest.trees[0], id, &st, 0), 0);
    cgroup_close_hierarchies(&forest);

    set_parent(before ? before : "cove");
    assert_int_equal(leaves(id), 0);
    assert_int_equal(sweep_open_host(&forest, &uids, &err), 0); /* with another parent, and the same locks */
    assert_true(uids_in_use(&uids, st.st_gid));
    uids_done(&uids);
    cgroup_close_hierarchies(&forest);
    host_start(&other);
    ask_template(&other, "t");
    expect(&other, FRAME_J_OK);
    host_stop(&other);

    set_parent(name);
    assert_true(leaves(id) > 0);
    drop_fds(&r);
    host_stop(&h);
    assert_int_equal(leaves(id), 0);
    assert_int_equal(cgroup_find_hierarchies(&forest, mountinfo, name, false, &err), 0);
    for (size_t i = 0; i < forest.ntrees; i++) {
        char link[32], path[256];

        snprintf(link, sizeof(link), "/proc/self/fd/%d", forest.trees[i]);
        ssize_t n = readlink(link, path, sizeof(path) - 1);
        assert_true(n > 0);
        path[n] = '\0';
        assert_int_equal(rmdir(path), 0);
    }
    cgroup_close_hierarchies(&forest);
    set_parent(before);
}

TEST(a_cgroup_parent_outside_the_rule_is_refused)
{
    auto_free char *before = getenv("COVE_CGROUP_PARENT") ? str_dup(getenv("COVE_CGROUP_PARENT")) : NULL;
    struct host h;
    int status;

    set_parent("cove/../../user.slice");
    host_start(&h);
    ask_template(&h, "t");
    expect_error(&h, ERR_INVALID);
    close(h.sock);
    assert_int_equal(waitpid(h.jailer, &status, 0), h.jailer);
    set_parent(before);
}

TEST(the_jailer_validates_every_field)
{
    struct host h;
    struct jail_create c;

    host_start(&h);
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    ask_template(&h, "t");
    expect_error(&h, ERR_EXISTS);
    ask_template(&h, "../t");
    expect_error(&h, ERR_INVALID);
    ask_filter(&h, "t", 1, 0); /* EXISTS would let a client continue with a different filter than it requested */
    expect_error(&h, ERR_INVALID);
    ask_filter(&h, "t", 0, 1ull << 63);
    expect_error(&h, ERR_INVALID);
    ask_filter(&h, "u", 1u << 31, 0);
    expect_error(&h, ERR_INVALID);
    ask_filter(&h, "u", 1, 1ull << 63);
    expect(&h, FRAME_J_OK);
    ask_filter(&h, "u", 1, 1ull << 63);
    expect_error(&h, ERR_EXISTS);

    c = a_request();
    strcpy(c.template, "nope");
    ask_create(&h, &c, NULL, 0);
    expect_error(&h, ERR_MISSING);
    c = a_request();
    ask_create_spoilt(&h, &c, c.id, "sb../../../../../../..", NULL, 0);
    expect_error(&h, ERR_PROTOCOL);
    c = a_request();
    strcpy(c.hostname, "a b");
    ask_create(&h, &c, NULL, 0);
    expect_error(&h, ERR_INVALID);
    c = a_request();
    c.limits[LIMIT_MEMORY] = 0;
    ask_create(&h, &c, NULL, 0);
    expect_error(&h, ERR_INVALID);
    c = a_request();
    c.nlimits--;
    ask_create(&h, &c, NULL, 0);
    expect_error(&h, ERR_VERSION);
    host_stop(&h);
}

TEST(the_jailer_validates_every_mount)
{
    struct host h;
    struct jail_create c;
    int dir = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    int file = open("/etc/passwd", O_PATH | O_CLOEXEC);

    host_start(&h);
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    c = a_request();
    c.nmounts = 1;
    c.mounts[0] = (struct jail_mount){ .kind = JAIL_BIND_RO, .fd = 3, .dst = "/mnt/x" };
    ask_create(&h, &c, &dir, 1); /* names a descriptor that was not sent */
    expect_error(&h, ERR_INVALID);
    c = a_request();
    c.nmounts = 1;
    c.mounts[0] = (struct jail_mount){ .kind = JAIL_BIND_RO, .fd = 0, .dst = "/proc/x" };
    ask_create(&h, &c, &dir, 1);
    expect_error(&h, ERR_BIND_TARGET);
    c = a_request();
    c.nmounts = 1;
    c.mounts[0] = (struct jail_mount){ .kind = JAIL_WORKSPACE, .fd = 0 };
    ask_create(&h, &c, &file, 1); /* a file is not a workspace */
    expect_error(&h, ERR_WORKSPACE_REFUSED);
    c = a_request();
    c.nmounts = 1;
    c.mounts[0] = (struct jail_mount){ .kind = JAIL_BIND_RO, .fd = 0, .dst = "/mnt/x" };
    ask_create_spoilt(&h, &c, "/mnt/x", "/mnt\n/", &dir, 1);
    expect_error(&h, ERR_BIND_TARGET);
    c = a_request();
    c.nmounts = 1;
    c.mounts[0] = (struct jail_mount){ .kind = JAIL_WORKSPACE, .fd = 0 };
    ask_create(&h, &c, &dir, 1); /* the whole host */
    expect_error(&h, ERR_BIND_REFUSED);
    close(dir);
    close(file);
    host_stop(&h);
}

static void ask_mount(struct host *h, uint8_t kind, const char *path)
{
    struct jail_create c = a_request();
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

    assert_true(fd >= 0);
    c.nmounts = 1;
    c.mounts[0] = (struct jail_mount){ .kind = kind, .fd = 0 };
    if (kind == JAIL_BIND_RO)
        strcpy(c.mounts[0].dst, "/mnt/x");
    ask_create(h, &c, &fd, 1);
    close(fd);
}

TEST(kernel_file_systems_and_run_are_never_mounted_not_even_as_submounts)
{
    /* Every kernel can map owners on a disk, but on a tmpfs only since 6.3. */
    char dir[] = "/var/tmp/cove-test-XXXXXX";
    struct host h;

    host_start(&h);
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    ask_mount(&h, JAIL_BIND_RO, "/proc");
    expect_error(&h, ERR_BIND_REFUSED);
    ask_mount(&h, JAIL_WORKSPACE, "/sys");
    expect_error(&h, ERR_BIND_REFUSED);
    ask_mount(&h, JAIL_BIND_RO, "/run"); /* nor the sockets of host services */
    expect_error(&h, ERR_BIND_REFUSED);

    assert_non_null(mkdtemp(dir));
    assert_int_equal(mount(dir, dir, NULL, MS_BIND, NULL), 0);
    auto_free char *below = str_printf("%s/proc", dir);
    assert_int_equal(mkdir(below, 0755), 0);
    ask_mount(&h, JAIL_WORKSPACE, dir);
    expect(&h, FRAME_J_CREATED);
    assert_int_equal(mount("proc", below, "proc", 0, NULL), 0);
    ask_mount(&h, JAIL_WORKSPACE, dir);
    expect_error(&h, ERR_WORKSPACE_REFUSED);
    assert_int_equal(umount2(below, MNT_DETACH), 0);
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
    host_stop(&h);
    assert_int_equal(rmdir(below), 0);
    assert_int_equal(rmdir(dir), 0);
}

TEST(requests_are_legal_only_in_their_states)
{
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    ask(&h, FRAME_J_THAW, id); /* no effect; a client that took over cannot know the state */
    expect(&h, FRAME_J_OK);
    ask(&h, FRAME_J_FREEZE, id);
    expect(&h, FRAME_J_OK);
    ask(&h, FRAME_J_FREEZE, id);
    expect_error(&h, ERR_EXISTS);
    ask(&h, FRAME_J_THAW, id);
    expect(&h, FRAME_J_OK);
    ask(&h, FRAME_J_FREEZE, id);
    expect(&h, FRAME_J_OK);
    ask(&h, FRAME_J_KILL, id); /* a frozen sandbox still dies */
    expect(&h, FRAME_J_OK);
    assert_true(readable_within(r.fds[1], 0));
    ask(&h, FRAME_J_THAW, id);
    expect_error(&h, ERR_EXISTS);
    ask(&h, FRAME_J_DESTROY, id);
    expect(&h, FRAME_DONE);
    drop_fds(&r);
    host_stop(&h);
}

TEST(frames_of_the_runtime_are_refused)
{
    struct host h;
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct jail_id m = { .id = "sbaaaaaaaaaaaaaaaaaaaa" };

    host_start(&h);
    send_frame(&h, FRAME_EXEC, out, jail_id_encode(&m, out, NULL), NULL, 0);
    expect_error(&h, ERR_MISSING);
    host_stop(&h);
}

TEST(the_end_of_a_sandbox_is_reported_without_a_request)
{
    struct host h;
    struct reply r, e;
    struct jail_event ev;
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    ask(&h, FRAME_J_KILL, id);
    receive(&h, &e);
    assert_int_equal(e.f.type, FRAME_J_EVENT);
    assert_int_equal(jail_event_decode(&e.f, &ev, NULL), 0);
    assert_string_equal(ev.id, id);
    assert_int_equal(ev.kind, JAIL_EVENT_ENDED);
    assert_true(WIFSIGNALED(ev.status) && WTERMSIG(ev.status) == SIGKILL);
    expect(&h, FRAME_J_OK);
    drop_fds(&r);
    host_stop(&h);
    assert_int_equal(leaves(id), 0);
}

TEST(a_kept_sandbox_outlives_its_client_and_can_be_adopted)
{
    struct host h, next = { 0 };
    struct reply r, a;
    struct err err = { 0 };
    char id[ID_SIZE];
    int status;

    one_sandbox(&h, id, &r);
    ask_keep(&h, id, r.fds[0]);
    expect(&h, FRAME_J_OK);
    ask(&h, FRAME_J_FREEZE, id);
    expect(&h, FRAME_J_OK);
    close(h.sock);
    assert_false(readable_within(r.fds[1], 200));
    drop_fds(&r);
    if (jailer_connect_kept(state_dir, id, &next.sock, &err) < 0)
        fail_msg("%s", err.msg);
    ask(&next, FRAME_J_ADOPT, id);
    answer_of(&next, &a);
    assert_int_equal(a.f.type, FRAME_J_CREATED);
    ask(&next, FRAME_J_THAW, id);
    expect(&next, FRAME_J_OK);
    greet(a.fds[0]);
    ask(&next, FRAME_J_DESTROY, id);
    expect(&next, FRAME_DONE);
    drop_fds(&a);
    close(next.sock);
    assert_int_equal(waitpid(h.jailer, &status, 0), h.jailer); /* the jailer ends with its last client */
    assert_int_equal(status, 0);
    assert_int_equal(leaves(id), 0);
    assert_int_equal(jailer_connect_kept(state_dir, id, &next.sock, &err), -1);
    assert_int_equal(err.id, ERR_MISSING);
}

TEST(a_jailer_holds_no_open_file_of_its_client)
{
    struct host h;
    int p[2];

    assert_int_equal(pipe2(p, O_CLOEXEC), 0);
    host_start(&h);
    close(p[1]);
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    assert_true(readable_within(p[0], 5000)); /* end of file, while jailer and spawner live */
    close(p[0]);
    host_stop(&h);
}

/* Two requests sent before the answer to the first: each stream gets an answer, the later one an
 * error. */
static void ask_twice(struct host *h, uint8_t type, const char *id)
{
    struct reply r;
    bool heard[2] = { false, false };

    ask(h, type, id);
    ask(h, type, id);
    for (int i = 0; i < 2; i++) {
        do
            receive(h, &r);
        while (r.f.type == FRAME_J_EVENT);
        assert_in_range(r.f.stream, h->stream - 2, h->stream);
        assert_false(heard[(h->stream - r.f.stream) / 2]);
        heard[(h->stream - r.f.stream) / 2] = true;
    }
}

TEST(a_request_sent_twice_is_answered_twice)
{
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    ask_twice(&h, FRAME_J_FREEZE, id);
    ask_twice(&h, FRAME_J_KILL, id);
    drop_fds(&r);
    host_stop(&h);
}

TEST(destroying_a_sandbox_in_creation_answers_both_requests)
{
    struct host h;
    struct reply r;
    struct jail_create c = a_request();
    uint8_t heard[2] = { 0, 0 };

    host_start(&h);
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    ask_create(&h, &c, NULL, 0);
    ask(&h, FRAME_J_DESTROY, c.id);
    for (int i = 0; i < 2; i++) {
        do
            receive(&h, &r);
        while (r.f.type == FRAME_J_EVENT);
        heard[(h.stream - r.f.stream) / 2] = r.f.type;
        drop_fds(&r);
    }
    assert_int_equal(heard[0], FRAME_DONE);
    assert_true(heard[1] == FRAME_J_ERROR || heard[1] == FRAME_J_CREATED); /* whichever came first */
    assert_int_equal(leaves(c.id), 0);
    host_stop(&h);
}

TEST(a_kept_socket_of_another_user_is_refused)
{
    char dir[] = "/run/cove-test-XXXXXX", id[ID_SIZE];
    struct sockaddr_un addr = { .sun_family = AF_UNIX };
    struct err err = { 0 };
    int ready[2], sock;

    id_new("sb", id);
    assert_non_null(mkdtemp(dir));
    assert_int_equal(chmod(dir, 0755), 0);
    auto_free char *kept = str_printf("%s/kept", dir);
    assert_int_equal(mkdir(kept, 0777), 0);
    assert_int_equal(chmod(kept, 0777), 0);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/%s", kept, id);
    assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

        if (setresuid(65534, 65534, 65534) < 0 || bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
            listen(fd, 1) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_true(readable_within(ready[0], 5000));
    assert_int_equal(jailer_connect_kept(dir, id, &sock, &err), -1);
    assert_int_equal(err.id, ERR_DENIED);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    unlink(addr.sun_path);
    rmdir(kept);
    rmdir(dir);
    close(ready[0]);
    close(ready[1]);
}

static pid_t child_of(pid_t pid)
{
    char path[64], text[64];

    snprintf(path, sizeof(path), "/proc/%d/task/%d/children", pid, pid);
    assert_true(fd_get_at(AT_FDCWD, path, text, sizeof(text)) > 0);
    return (pid_t)atoi(text);
}

TEST(a_lost_spawner_ends_its_frozen_sandboxes_and_the_jailer_continues)
{
    struct host h;
    struct reply r;
    struct jail_create c;
    char id[ID_SIZE];

    one_sandbox(&h, id, &r);
    ask(&h, FRAME_J_FREEZE, id);
    expect(&h, FRAME_J_OK);
    assert_int_equal(kill(child_of(h.jailer), SIGKILL), 0);
    assert_true(readable_within(r.fds[1], 5000));
    drop_fds(&r);
    ask(&h, FRAME_J_DESTROY, id);
    expect(&h, FRAME_DONE);
    assert_int_equal(leaves(id), 0);
    ask_template(&h, "t"); /* the name can be used again */
    expect(&h, FRAME_J_OK);
    c = a_request();
    ask_create(&h, &c, NULL, 0);
    expect(&h, FRAME_J_CREATED);
    host_stop(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(destroying_returns_counters_and_removes_every_leaf),
        RUN(the_sandboxes_of_a_disconnected_client_end),
        RUN(a_killed_jailer_leaves_no_process_and_the_next_one_cleans_up),
        RUN(the_next_jailer_does_not_touch_live_sandboxes),
        RUN(a_jailer_with_another_state_directory_sees_live_sandboxes_too),
        RUN(another_cgroup_parent_holds_the_leaves_and_shares_the_uids_of_the_host),
        RUN(a_cgroup_parent_outside_the_rule_is_refused),
        RUN(the_jailer_validates_every_field),
        RUN(the_jailer_validates_every_mount),
        RUN(kernel_file_systems_and_run_are_never_mounted_not_even_as_submounts),
        RUN(requests_are_legal_only_in_their_states),
        RUN(frames_of_the_runtime_are_refused),
        RUN(the_end_of_a_sandbox_is_reported_without_a_request),
        RUN(a_kept_sandbox_outlives_its_client_and_can_be_adopted),
        RUN(a_jailer_holds_no_open_file_of_its_client),
        RUN(a_request_sent_twice_is_answered_twice),
        RUN(destroying_a_sandbox_in_creation_answers_both_requests),
        RUN(a_kept_socket_of_another_user_is_refused),
        RUN(a_lost_spawner_ends_its_frozen_sandboxes_and_the_jailer_continues),
    };

    if (geteuid() != 0) {
        printf("1..0 # SKIP the native driver requires root\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
