/* The jailer as a service: clients connect and disconnect, are authenticated, and may be malicious.
 * Sandboxes that they asked to keep outlive them, and no sandbox outlives the jailer. */
#include "jail_host.h"

#include "core/base/id.h"
#include "core/wire/unix_listener.h"
#include "host/jailer/sweep.h"

#include <errno.h>
#include <grp.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <time.h>

#define HOST_UID 64321u
#define STRANGER_UID 64322u

static pid_t service;
static char door[96];

static void service_start(void)
{
    struct jailer_settings s = { .runtime_fd = open(getenv("COVE_RUNTIME"), O_RDONLY | O_CLOEXEC),
                                 .state_dir = state_dir,
                                 .socket = door,
                                 .host_uid = HOST_UID };

    assert_true(s.runtime_fd >= 0);
    assert_int_equal(chmod(state_dir, 0755), 0); /* so that the jailer refuses, and not the directory */
    snprintf(door, sizeof(door), "%s/jailer.sock", state_dir);
    service = fork();
    assert_true(service >= 0);
    if (service == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test must not leave it running */
        _exit(jailer_service(&s));
    }
    close(s.runtime_fd);
}

static void knock(struct host *h)
{
    *h = (struct host){ .sock = -1, .jailer = service };
    for (int i = 0; i < 500 && unix_connect(door, &h->sock, NULL, NULL) < 0; i++)
        poll(NULL, 0, 10);
    assert_true(h->sock >= 0);
}

static void service_stop(void)
{
    int status;

    kill(service, SIGTERM);
    assert_int_equal(waitpid(service, &status, 0), service);
    assert_int_equal(status, 0);
    assert_int_equal(access(door, F_OK), -1);
}

static void make_one(struct host *h, struct jail_create *c, struct reply *r)
{
    *c = a_request();
    ask_template(h, "t");
    answer_of(h, r); /* OK, or EXISTS */
    ask_create(h, c, NULL, 0);
    answer_of(h, r);
    assert_int_equal(r->f.type, FRAME_J_CREATED);
}

static bool ended(struct host *h) /* whether the other side closed the connection */
{
    struct pollfd p = { .fd = h->sock, .events = POLLIN };
    char c;

    return poll(&p, 1, 5000) == 1 && recv(h->sock, &c, 1, MSG_DONTWAIT) <= 0;
}

static void listed(struct host *h, const char *after, struct jail_list *ret)
{
    struct reply r;

    if (after)
        ask(h, FRAME_J_LIST, after);
    else
        send_frame(h, FRAME_J_LIST, NULL, 0, NULL, 0);
    answer_of(h, &r);
    assert_int_equal(r.f.type, FRAME_DONE);
    assert_int_equal(jail_list_decode(&r.f, ret, NULL), 0);
}

/* Runs fn in a process of another user; its assertions count here. */
static void as_user(uid_t uid, void (*fn)(void))
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        if (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0)
            _exit(99);
        fn();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status)
        fail_msg("as uid %u: %s %d", uid, WIFEXITED(status) ? "line" : "signal",
                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}
#define HOLDS(x)                       \
    do {                               \
        if (!(x))                      \
            _exit(__LINE__ % 200 + 1); \
    } while (0)

static enum err_id error_of(struct host *h)
{
    struct reply r;
    struct rt_error e = { 0 };

    answer_of(h, &r);
    drop_fds(&r);
    if (r.f.type == FRAME_J_ERROR)
        (void)rt_error_decode(&r.f, &e, NULL);
    return (enum err_id)e.id;
}

/* --- authentication --- */

static void stranger_is_sent_away(void)
{
    struct host h = { .sock = -1 };

    if (unix_connect(door, &h.sock, NULL, NULL) == 0)
        HOLDS(ended(&h));
}

TEST(a_foreign_uid_is_refused_by_the_socket_and_by_the_jailer)
{
    struct host h;

    service_start();
    knock(&h);
    as_user(STRANGER_UID, stranger_is_sent_away);
    assert_int_equal(chmod(door, 0666), 0); /* the mode of the socket is only a part of the check */
    as_user(STRANGER_UID, stranger_is_sent_away);
    ask_template(&h, "t"); /* other clients are not affected */
    expect(&h, FRAME_J_OK);
    close(h.sock);
    service_stop();
}

static void lend(struct host *h, const char *path, uid_t uid, gid_t gid)
{
    struct jail_create c = a_request();
    int fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);

    HOLDS(fd >= 0);
    c.owner_uid = uid;
    c.owner_gid = gid;
    c.nmounts = 1;
    c.mounts[0] = (struct jail_mount){ .kind = JAIL_WORKSPACE, .fd = 0 };
    ask_create(h, &c, &fd, 1);
    close(fd);
}

static void host_lends_as_itself_only(void)
{
    struct host h;

    knock(&h);
    ask_template(&h, "t");
    (void)error_of(&h);
    lend(&h, "/tmp", 0, 0);
    HOLDS(error_of(&h) == ERR_DENIED);
    lend(&h, "/tmp", HOST_UID, 0);
    HOLDS(error_of(&h) == ERR_DENIED);
    lend(&h, "/proc", HOST_UID, HOST_UID);
    HOLDS(error_of(&h) == ERR_BIND_SOURCE);
    lend(&h, "/var", HOST_UID, HOST_UID);
    HOLDS(error_of(&h) == ERR_NONE);
}

TEST(an_unprivileged_client_mounts_files_as_itself_only)
{
    struct host h;

    service_start();
    knock(&h);
    as_user(HOST_UID, host_lends_as_itself_only);
    close(h.sock);
    service_stop();
}

/* A file system whose process never answers: every access to it blocks. */
static char silent[] = "/run/cove-silent-XXXXXX";

static void host_lends_what_never_answers(void)
{
    struct host h;

    knock(&h);
    lend(&h, silent, HOST_UID, HOST_UID);
    HOLDS(error_of(&h) == ERR_BIND_SOURCE);
}

TEST(a_hanging_file_system_does_not_block_the_jailer)
{
    char options[96];
    struct host h;
    int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);

    if (fuse < 0)
        skip(); /* no FUSE here: the type is refused by name all the same, like that of /proc above */
    assert_non_null(mkdtemp(silent));
    snprintf(options, sizeof(options), "fd=%d,rootmode=40777,user_id=0,group_id=0,allow_other", fuse);
    if (mount("cove-test", silent, "fuse", MS_NOSUID | MS_NODEV, options) < 0) {
        rmdir(silent);
        close(fuse);
        skip();
    }
    service_start();
    knock(&h);
    as_user(HOST_UID, host_lends_what_never_answers);
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    close(h.sock);
    assert_int_equal(umount2(silent, MNT_DETACH), 0);
    close(fuse);
    rmdir(silent);
    service_stop();
}

static void other_host_sees_nothing_of_root(void)
{
    struct host h;
    struct jail_list l;

    knock(&h);
    listed(&h, NULL, &l);
    HOLDS(l.n == 0);
}

TEST(each_client_has_its_own_sandboxes)
{
    struct host a, b;
    struct jail_create ca, cb;
    struct reply ra, rb;
    struct jail_list l;

    service_start();
    knock(&a);
    knock(&b);
    make_one(&a, &ca, &ra);
    make_one(&b, &cb, &rb);
    ask(&b, FRAME_J_STATS, ca.id);
    expect_error(&b, ERR_MISSING);
    ask(&b, FRAME_J_ADOPT, ca.id); /* in use */
    expect_error(&b, ERR_BUSY);
    listed(&a, NULL, &l);
    assert_int_equal(l.n, 2);
    assert_true(strcmp(l.ids[0], l.ids[1]) < 0); /* sorted, so that pages follow each other */
    listed(&a, l.ids[0], &l);
    assert_int_equal(l.n, 1);
    listed(&a, l.ids[0], &l);
    assert_int_equal(l.n, 0);
    as_user(HOST_UID, other_host_sees_nothing_of_root);
    close(a.sock); /* it kept nothing */
    assert_true(readable_within(ra.fds[1], 5000));
    ask(&b, FRAME_J_STATS, cb.id);
    expect(&b, FRAME_DONE);
    drop_fds(&ra);
    drop_fds(&rb);
    close(b.sock);
    service_stop();
    assert_int_equal(leaves(ca.id) + leaves(cb.id), 0);
}

/* --- clients that die --- */

static void say(int control, uint8_t type, uint32_t stream, const uint8_t *payload, int len)
{
    uint8_t packet[FRAME_MAX];

    assert_true(len >= 0);
    frame_header(packet, &(struct frame){ .type = type, .stream = stream, .len = (uint32_t)len });
    memcpy(packet + FRAME_HEADER, payload, (size_t)len);
    assert_true(fd_send(control, packet, FRAME_HEADER + (size_t)len, NULL, 0, 0) > 0);
}

static void hear(int control, uint8_t type, struct reply *r)
{
    struct err err;

    for (;;) {
        assert_true(readable_within(control, 10000));
        ssize_t n = recv(control, r->bytes, sizeof(r->bytes), 0);
        assert_true(n > 0);
        assert_int_equal(frame_parse(r->bytes, (size_t)n, &r->f, &err), 0);
        if (r->f.type == type)
            return;
    }
}

static void claim_and_run(int control, const char *id, const char *script)
{
    static uint8_t out[FRAME_PAYLOAD_MAX];
    static struct rt_claim claim;
    const char *const env[] = { "PATH=/usr/bin:/bin", NULL };
    const char *const argv[] = { "sh", "-c", script, NULL };
    struct rt_exec x = { .cwd = "", .argv = argv };
    struct reply r;

    claim = (struct rt_claim){ .nrules = 2, .env = env };
    claim.rules[0] = (struct rt_rule){ RT_ACCESS_READ_WRITE, "/" };
    claim.rules[1] = (struct rt_rule){ RT_ACCESS_DEVICE, "/dev" };
    memcpy(claim.id, id, sizeof(claim.id));
    say(control, FRAME_CLAIM, 0, out, rt_claim_encode(&claim, out, NULL));
    hear(control, FRAME_CLAIMED, &r);
    say(control, FRAME_EXEC, 2, out, rt_exec_encode(&x, out, NULL));
    hear(control, FRAME_STARTED, &r);
}

static void first_host(void)
{
    struct host h;
    struct jail_create c;
    struct reply r, d;

    knock(&h);
    make_one(&h, &c, &r);
    greet(r.fds[0]);
    claim_and_run(r.fds[0], c.id, "echo heard; sleep 60; echo more");
    hear(r.fds[0], FRAME_DATA, &d); /* received but not credited: it may or may not have been stored */
    ask_keep(&h, c.id, r.fds[0]);
    expect(&h, FRAME_J_OK);
    kill(getpid(), SIGKILL);
}

TEST(the_next_client_adopts_a_sandbox_of_a_killed_one_and_resumes_its_output)
{
    static uint8_t out[FRAME_PAYLOAD_MAX];
    struct rt_hello hello = { .version = WIRE_VERSION, .epoch = 8 };
    struct jail_list l = { 0 };
    struct host h;
    struct reply r, d;
    struct rt_resume m;
    int status;

    service_start();
    knock(&h);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        first_host();
        _exit(1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    listed(&h, NULL, &l);
    assert_int_equal(l.n, 1);
    do { /* the jailer may not have noticed the end of the first one yet */
        ask(&h, FRAME_J_ADOPT, l.ids[0]);
        answer_of(&h, &r);
    } while (r.f.type == FRAME_J_ERROR);
    assert_int_equal(r.f.type, FRAME_J_CREATED);
    say(r.fds[0], FRAME_HELLO, 0, out, rt_hello_encode(&hello, out, NULL));
    hear(r.fds[0], FRAME_RESUME, &d);
    assert_int_equal(rt_resume_decode(&d.f, &m, NULL), 0);
    assert_int_equal(d.f.stream, 2);
    assert_int_equal(m.request, FRAME_EXEC);
    assert_int_equal(m.out, 0);
    hear(r.fds[0], FRAME_DATA, &d);
    assert_int_equal(d.f.len, 6);
    assert_memory_equal(d.f.data, "heard\n", 6);
    ask(&h, FRAME_J_DESTROY, l.ids[0]);
    expect(&h, FRAME_DONE);
    drop_fds(&r);
    close(h.sock);
    service_stop();
}

TEST(a_kept_sandbox_without_a_client_ends_with_its_extended_lifetime)
{
    static uint8_t out[FRAME_PAYLOAD_MAX];
    struct host h;
    struct jail_create c;
    struct reply r;

    service_start();
    knock(&h);
    make_one(&h, &c, &r);
    ask_keep(&h, c.id, r.fds[0]);
    expect(&h, FRAME_J_OK);
    struct jail_set_limits m = { .lifetime_ms = 0 };
    memcpy(m.id, c.id, sizeof(m.id));
    send_frame(&h, FRAME_J_SET_LIMITS, out, jail_set_limits_encode(&m, out, NULL), NULL, 0);
    expect_error(&h, ERR_INVALID);
    m.lifetime_ms = c.limits[LIMIT_WALL] + 1;
    c.limits[LIMIT_WALL] = 1;
    send_frame(&h, FRAME_J_SET_LIMITS, out, jail_set_limits_encode(&m, out, NULL), NULL, 0);
    expect(&h, FRAME_J_OK);
    close(h.sock);
    assert_false(readable_within(r.fds[1], 300));
    drop_fds(&r);
    service_stop();
    assert_int_equal(leaves(c.id), 0);
}

/* --- many at the same time --- */

TEST(requests_beyond_the_spawner_s_socket_buffer_wait_in_order)
{
    enum { MANY = 160 };
    struct host h;
    struct reply r;
    struct jail_create c;
    int made = 0;

    service_start();
    knock(&h);
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    for (int i = 0; i < MANY; i++) {
        c = a_request();
        ask_create(&h, &c, NULL, 0);
    }
    for (int i = 0; i < MANY; i++) {
        receive(&h, &r);
        made += r.f.type == FRAME_J_CREATED;
        if (r.f.type == FRAME_J_EVENT)
            i--;
        drop_fds(&r);
    }
    assert_int_equal(made, MANY);
    close(h.sock);
    service_stop();
    assert_int_equal(leaves(c.id), 0);
}

TEST(a_waiting_request_can_be_destroyed_and_ends_with_its_client)
{
    enum { MANY = 60 };
    struct host h, other;
    struct reply r;
    struct jail_create c[MANY];
    struct jail_list l;
    int answers = 0;

    service_start();
    knock(&h);
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    for (int i = 0; i < MANY; i++) {
        c[i] = a_request();
        ask_create(&h, &c[i], NULL, 0);
    }
    ask(&h, FRAME_J_DESTROY, c[MANY - 1].id);
    uint32_t destroyed = h.stream;
    bool done = false;
    while (!done || answers == 0) { /* its creation is answered as well, exactly once */
        receive(&h, &r);
        done = done || r.f.stream == destroyed;
        answers += r.f.stream == destroyed - 2;
        drop_fds(&r);
    }
    assert_int_equal(answers, 1);
    knock(&other);
    close(h.sock);
    do
        listed(&other, NULL, &l);
    while (l.n);
    close(other.sock);
    service_stop();
    for (int i = 0; i < MANY; i++)
        assert_int_equal(leaves(c[i].id), 0);
}

/* --- ends of the jailer --- */

TEST(sigterm_also_ends_kept_sandboxes_and_leaves_nothing)
{
    struct host h;
    struct jail_create c;
    struct reply r;

    service_start();
    knock(&h);
    make_one(&h, &c, &r);
    ask_keep(&h, c.id, r.fds[0]);
    expect(&h, FRAME_J_OK);
    service_stop();
    assert_true(readable_within(r.fds[1], 0));
    assert_int_equal(leaves(c.id), 0);
    drop_fds(&r);
    close(h.sock);
}

TEST(sandboxes_of_a_killed_jailer_end_and_the_next_one_cleans_up)
{
    struct host h;
    struct jail_create c, again;
    struct reply r;

    service_start();
    knock(&h);
    make_one(&h, &c, &r);
    ask_keep(&h, c.id, r.fds[0]);
    expect(&h, FRAME_J_OK);
    kill(service, SIGKILL);
    assert_int_equal(waitpid(service, NULL, 0), service);
    assert_true(readable_within(r.fds[1], 5000));
    assert_true(ended(&h));
    drop_fds(&r);
    close(h.sock);
    assert_true(leaves(c.id) > 0);
    service_start(); /* on the socket file of the dead one */
    knock(&h);
    make_one(&h, &again, &r);
    for (int i = 0; i < 200 && leaves(c.id) > 0; i++)
        poll(NULL, 0, 20);
    assert_int_equal(leaves(c.id), 0);
    drop_fds(&r);
    close(h.sock);
    service_stop();
}

/* The next jailer cleans up while it creates sandboxes, some of which are destroyed immediately:
 * every old sandbox is removed, and of the new ones exactly those that were destroyed. */
TEST(RC09_a_cleanup_concurrent_with_creation_removes_no_live_sandbox)
{
    enum { OLD = 24, NEW = 48 };
    struct host h;
    static struct jail_create old[OLD], c[NEW];
    static struct reply r[NEW], answer;
    int made = 0, gone = 0;

    service_start();
    knock(&h);
    for (int i = 0; i < OLD; i++) {
        make_one(&h, &old[i], &answer);
        drop_fds(&answer);
    }
    kill(service, SIGKILL);
    assert_int_equal(waitpid(service, NULL, 0), service);
    close(h.sock);
    service_start();
    knock(&h);
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    uint32_t first = h.stream + 2;
    for (int i = 0; i < NEW; i++) {
        c[i] = a_request();
        ask_create(&h, &c[i], NULL, 0);
    }
    uint32_t last = h.stream;
    for (int i = 1; i < NEW; i += 2)
        ask(&h, FRAME_J_DESTROY, c[i].id);
    for (int answers = 0; answers < NEW + NEW / 2;) {
        receive(&h, &answer);
        answers += answer.f.type != FRAME_J_EVENT;
        if (answer.f.type == FRAME_J_CREATED && (answer.f.stream - first) / 2 % 2 == 0) {
            assert_true(answer.f.stream <= last);
            r[(answer.f.stream - first) / 2] = answer;
            made++;
        } else {
            drop_fds(&answer);
        }
    }
    assert_int_equal(made, NEW / 2);
    for (int i = 0; i < 3000 && gone < OLD; i++) {
        gone = 0;
        for (int k = 0; k < OLD; k++)
            gone += leaves(old[k].id) == 0;
        poll(NULL, 0, 20);
    }
    assert_int_equal(gone, OLD);
    for (int i = 0; i < NEW; i += 2) {
        assert_false(readable_within(r[i].fds[1], 0)); /* it lives */
        assert_true(leaves(c[i].id) > 0);
        assert_int_equal(leaves(c[i + 1].id), 0);
        drop_fds(&r[i]);
    }
    close(h.sock);
    service_stop();
}

static bool leaf_goes_within(const char *id, int ms)
{
    for (int i = 0; i < ms / 20 && leaves(id) > 0; i++)
        poll(NULL, 0, 20);
    return leaves(id) == 0;
}

/* This process plays the spawner of a killed jailer: it holds the lock of its uid while the next
 * jailer sweeps. */
TEST(a_leaf_with_a_locked_uid_is_removed_after_the_lock_is_released)
{
    struct cgroup_hierarchies hierarchies;
    struct uids uids = { .fd = -1 };
    struct err err = { 0 };
    struct host h;
    char id[ID_SIZE];
    uid_t uid;

    if (sweep_open_host(&hierarchies, &uids, &err) < 0 || uids_take(&uids, &uid, &err) < 0)
        fail_msg("%s", err.msg);
    id_new("sb", id);
    for (size_t i = 0; i < hierarchies.ntrees; i++) {
        assert_int_equal(mkdirat(hierarchies.trees[i], id, 0755), 0);
        assert_int_equal(fchownat(hierarchies.trees[i], id, 0, uid, AT_SYMLINK_NOFOLLOW), 0);
    }
    service_start();
    knock(&h);
    assert_false(leaf_goes_within(id, 400)); /* swept several times, but not removed */
    uids_release(&uids, uid);
    assert_true(leaf_goes_within(id, 25000));
    close(h.sock);
    service_stop();
    cgroup_close_hierarchies(&hierarchies);
    uids_done(&uids);
}

TEST(a_second_jailer_on_the_same_socket_is_refused)
{
    struct host h;
    pid_t first;
    int status;

    service_start();
    first = service;
    knock(&h);
    service_start();
    assert_int_equal(waitpid(service, &status, 0), service);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    service = first;
    ask_template(&h, "t");
    expect(&h, FRAME_J_OK);
    close(h.sock);
    service_stop();
}

TEST(malformed_frames_and_descriptor_floods_affect_only_their_own_connection)
{
    struct host bad, good;
    uint8_t junk[FRAME_MAX] = { 0xff, 0xff, 0xff, 0xff };
    int fds[FD_PASS_MAX];

    service_start();
    knock(&good);
    knock(&bad);
    assert_true(fd_send(bad.sock, junk, sizeof(junk), NULL, 0, 0) > 0);
    assert_true(ended(&bad));
    close(bad.sock);
    knock(&bad);
    for (size_t i = 0; i < ARRAY_LEN(fds); i++)
        fds[i] = STDIN_FILENO;
    for (int i = 0; i < 200; i++) {
        struct jail_create c = a_request();

        ask_create(&bad, &c, fds, ARRAY_LEN(fds));
        expect_error(&bad, ERR_MISSING); /* no template */
    }
    close(bad.sock);
    ask_template(&good, "t");
    expect(&good, FRAME_J_OK);
    close(good.sock);
    service_stop();
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_foreign_uid_is_refused_by_the_socket_and_by_the_jailer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(an_unprivileged_client_mounts_files_as_itself_only, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_hanging_file_system_does_not_block_the_jailer, set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_client_has_its_own_sandboxes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_next_client_adopts_a_sandbox_of_a_killed_one_and_resumes_its_output, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_kept_sandbox_without_a_client_ends_with_its_extended_lifetime, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(requests_beyond_the_spawner_s_socket_buffer_wait_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_waiting_request_can_be_destroyed_and_ends_with_its_client, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sigterm_also_ends_kept_sandboxes_and_leaves_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(sandboxes_of_a_killed_jailer_end_and_the_next_one_cleans_up, set_up, tear_down),
        cmocka_unit_test_setup_teardown(RC09_a_cleanup_concurrent_with_creation_removes_no_live_sandbox, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_leaf_with_a_locked_uid_is_removed_after_the_lock_is_released, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_second_jailer_on_the_same_socket_is_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(malformed_frames_and_descriptor_floods_affect_only_their_own_connection, set_up,
                                        tear_down),
    };

    if (geteuid() != 0) {
        puts("1..0 # SKIP needs root");
        return 0;
    }
    return cmocka_run_group_tests_name("jailer as a service", tests, NULL, NULL);
}
