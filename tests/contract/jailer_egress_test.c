/* The listeners of sandboxes with a network, as the egress proxy gets them from the real jailer,
 * and what a program in the network of such a sandbox can reach. The test is the proxy. */
#include "jail_host.h"

#include "core/base/clock.h"
#include "core/wire/egress.h"
#include "core/wire/unix_listener.h"

#include <arpa/inet.h>
#include <errno.h>
#include <grp.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/un.h>

#define PLAIN_UID 64321u
#define INSIDE_UID 64322u /* does not own the network of a sandbox, so it has no privilege there */

/* In a process of its own, which ends with the line. */
#define HOLDS_INSIDE(what)               \
    do {                                 \
        if (!(what))                     \
            _exit(__LINE__ % 100 + 100); \
    } while (0)

static int proxy = -1; /* the proxy's end of its connection with the jailer */

struct announced {
    struct egress_listen m;
    struct reply r; /* with the listeners as descriptors */
};

/* --- the jailer and its proxy --- */

static void start_with_proxy(struct host *h)
{
    struct jailer_settings s = { .runtime_fd = open(getenv("COVE_RUNTIME"), O_RDONLY | O_CLOEXEC),
                                 .state_dir = state_dir };
    struct err err = { 0 };
    int sv[2];

    assert_true(s.runtime_fd >= 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
    s.egress_fd = sv[1];
    proxy = sv[0];
    h->stream = 0;
    if (jailer_fork(&s, &h->sock, &h->jailer, &err) < 0)
        fail_msg("%s", err.msg);
    close(s.runtime_fd);
    close(sv[1]);
}

static void stop_with_proxy(struct host *h)
{
    host_stop(h);
    close(proxy);
}

static void ask_egress_template(struct host *h, const char *name, bool egress, bool joinable)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct jail_template t = { .profile = PROFILE_BASE, .egress = egress, .joinable = joinable };

    assert_true(str_copy(t.name, sizeof(t.name), name));
    send_frame(h, FRAME_J_TEMPLATE, out, jail_template_encode(&t, out, NULL), NULL, 0);
}

static void hear_proxy(uint8_t type, struct reply *r)
{
    struct host as_client = { .sock = proxy };

    receive(&as_client, r);
    if (r->f.type != type)
        fail_msg("the proxy received %s instead of %s", frame_name(r->f.type), frame_name(type));
}

static void hear_listeners(struct announced *a, const char *id)
{
    hear_proxy(FRAME_E_LISTEN, &a->r);
    assert_int_equal(egress_listen_decode(&a->r.f, &a->m, NULL), 0);
    assert_string_equal(a->m.id, id);
    assert_int_equal(a->r.nfds, a->m.carrier == EGRESS_CARRIER_TPROXY ? 4 : 3);
}

static void hear_end(const char *id)
{
    struct egress_id m;
    struct reply r;

    hear_proxy(FRAME_E_UNLISTEN, &r);
    assert_int_equal(r.nfds, 0);
    assert_int_equal(egress_id_decode(&r.f, &m, NULL), 0);
    assert_string_equal(m.id, id);
}

static void create_egress(struct host *h, char id[ID_SIZE], struct reply *r, struct announced *a)
{
    struct jail_create c = a_request();
    struct jail_created m;

    c.network = 1;
    memcpy(id, c.id, ID_SIZE);
    ask_create(h, &c, NULL, 0);
    answer_of(h, r);
    if (r->f.type != FRAME_J_CREATED) {
        struct rt_error e = { 0 };

        (void)rt_error_decode(&r->f, &e, NULL);
        fail_msg("%s", e.msg);
    }
    assert_int_equal(jail_created_decode(&r->f, &m, NULL), 0);
    if (!a)
        return;
    assert_true(readable_within(proxy, 0)); /* before J_CREATED */
    hear_listeners(a, id);
    assert_int_equal(m.egress_carrier, a->m.carrier);
    greet(r->fds[0]);
}

static void egress_sandbox(struct host *h, char id[ID_SIZE], struct reply *r, struct announced *a, bool joinable)
{
    start_with_proxy(h);
    ask_egress_template(h, "t", true, joinable);
    expect(h, FRAME_J_OK);
    create_egress(h, id, r, a);
    if (a->m.carrier != EGRESS_CARRIER_TPROXY)
        skip(); /* this kernel has no TPROXY; a_kernel_without_tproxy_... tests what it has */
}

static void destroy(struct host *h, const char *id)
{
    ask(h, FRAME_J_DESTROY, id);
    hear_end(id);
    expect(h, FRAME_DONE);
}

/* --- in the network of the sandbox --- */

/* Runs fn in a process of its own in the network of the sandbox, which exits with its result. */
static pid_t start_inside(const struct reply *created, int (*fn)(void))
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (setns(created->fds[1], CLONE_NEWNET) < 0 || setresuid(INSIDE_UID, INSIDE_UID, INSIDE_UID) < 0)
            _exit(120);
        alarm(20);
        _exit(fn());
    }
    return pid;
}

static void must_succeed(pid_t pid)
{
    int status;

    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (status)
        fail_msg("the program inside ended with wait status %d", status);
}

static struct sockaddr_in v4(const char *address, uint16_t port)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };

    (void)inet_pton(AF_INET, address, &a.sin_addr);
    return a;
}

static int connect_v4(int type, const char *address, uint16_t port)
{
    struct sockaddr_in a = v4(address, port);
    auto_fd int sock = socket(AF_INET, type | SOCK_CLOEXEC, 0);

    return sock < 0 || connect(sock, (struct sockaddr *)&a, sizeof(a)) < 0 ? -1 : take_fd(&sock);
}

static int connect_v6(const char *address, uint16_t port)
{
    struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
    auto_fd int sock = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    (void)inet_pton(AF_INET6, address, &a.sin6_addr);
    return sock < 0 || connect(sock, (struct sockaddr *)&a, sizeof(a)) < 0 ? -1 : take_fd(&sock);
}

/* Sends a byte and expects it back, after which the peer has what it needs. */
static bool is_echoed(int sock)
{
    char c = 'x';

    return sock >= 0 && send(sock, &c, 1, 0) == 1 && recv(sock, &c, 1, 0) == 1;
}

/* Accepts at a listener, which must report this destination, and echoes a byte. */
static void serve_one(int listener, const char *address, uint16_t port)
{
    struct sockaddr_in at = { 0 }, want = v4(address, port);
    socklen_t len = sizeof(at);
    char c;

    if (!readable_within(listener, 20000))
        fail_msg("no connection to %s:%u", address, port);
    auto_fd int sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(sock >= 0);
    assert_int_equal(getsockname(sock, (struct sockaddr *)&at, &len), 0);
    assert_int_equal(at.sin_port, want.sin_port);
    assert_int_equal(at.sin_addr.s_addr, want.sin_addr.s_addr);
    assert_int_equal(recv(sock, &c, 1, 0), 1);
    assert_int_equal(send(sock, &c, 1, 0), 1);
}

static int program_that_uses_every_listener(void)
{
    int udp = connect_v4(SOCK_DGRAM, "127.0.0.1", 53);

    return !is_echoed(udp)                                                       ? 1
           : !is_echoed(connect_v4(SOCK_STREAM, "127.0.0.1", 53))                ? 2
           : !is_echoed(connect_v4(SOCK_STREAM, "127.0.0.1", EGRESS_PROXY_PORT)) ? 3
           : !is_echoed(connect_v4(SOCK_STREAM, "198.18.0.2", 443))              ? 4
           : !is_echoed(connect_v4(SOCK_STREAM, "198.19.255.254", 65535))        ? 5
           : !is_echoed(connect_v6("::ffff:198.18.7.9", 22))                     ? 6
                                                                                 : 0;
}

static void check_every_listener(const struct reply *created, const struct announced *a)
{
    struct sockaddr_in from;
    socklen_t len = sizeof(from);
    char c;
    pid_t pid = start_inside(created, program_that_uses_every_listener);

    assert_true(readable_within(a->r.fds[EGRESS_LISTEN_DNS_UDP], 20000));
    assert_int_equal(recvfrom(a->r.fds[EGRESS_LISTEN_DNS_UDP], &c, 1, 0, (struct sockaddr *)&from, &len), 1);
    assert_int_equal(sendto(a->r.fds[EGRESS_LISTEN_DNS_UDP], &c, 1, 0, (struct sockaddr *)&from, len), 1);
    serve_one(a->r.fds[EGRESS_LISTEN_DNS_TCP], "127.0.0.1", 53);
    serve_one(a->r.fds[EGRESS_LISTEN_PROXY], "127.0.0.1", EGRESS_PROXY_PORT);
    serve_one(a->r.fds[EGRESS_LISTEN_ANY], "198.18.0.2", 443);
    serve_one(a->r.fds[EGRESS_LISTEN_ANY], "198.19.255.254", 65535);
    serve_one(a->r.fds[EGRESS_LISTEN_ANY], "198.18.7.9", 22);
    must_succeed(pid);
}

TEST(connections_from_inside_arrive_at_the_listeners_with_their_destination)
{
    struct announced a;
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    egress_sandbox(&h, id, &r, &a, false);
    check_every_listener(&r, &a);
    drop_fds(&a.r);
    destroy(&h, id);
    drop_fds(&r);
    stop_with_proxy(&h);
}

/* The errno of a connection; 0: it was made. */
static int refusal(int sock)
{
    if (sock < 0)
        return errno;
    close(sock);
    return 0;
}

static int program_that_tries_other_addresses(void)
{
    static const char *const closed[] = { "192.0.2.1", "169.254.169.254", "10.0.0.1",  "192.168.0.1",
                                          "8.8.8.8",   "198.20.0.1",      "198.17.0.1" };

    for (size_t i = 0; i < ARRAY_LEN(closed); i++) {
        char mapped[64];

        snprintf(mapped, sizeof(mapped), "::ffff:%s", closed[i]);
        if (refusal(connect_v4(SOCK_STREAM, closed[i], 443)) != EACCES ||
            refusal(connect_v4(SOCK_DGRAM, closed[i], 53)) != EACCES || refusal(connect_v6(mapped, 80)) != EACCES)
            return 1 + (int)i;
    }
    int udp = connect_v4(SOCK_DGRAM, "198.18.0.2", 443); /* QUIC */
    char c = 0;
    if (udp < 0 || send(udp, &c, 1, 0) != 1 || recv(udp, &c, 1, 0) != -1 || errno != ECONNREFUSED)
        return 20;
    int six = refusal(connect_v6("2001:db8::1", 443));
    if (six != EACCES && six != EAFNOSUPPORT && six != ENETUNREACH)
        return 21;
    int on = 1;
    auto_fd int raw = socket(AF_INET, SOCK_RAW, IPPROTO_TCP), sock = socket(AF_INET, SOCK_STREAM, 0);
    if (raw >= 0 || setsockopt(sock, IPPROTO_IP, IP_TRANSPARENT, &on, sizeof(on)) == 0)
        return 22;
    return 0;
}

TEST(every_other_address_is_still_prohibited)
{
    struct announced a;
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    egress_sandbox(&h, id, &r, &a, false);
    must_succeed(start_inside(&r, program_that_tries_other_addresses));
    for (size_t i = 0; i < a.r.nfds; i++)
        assert_false(readable_within(a.r.fds[i], 0));
    drop_fds(&a.r);
    drop_fds(&r);
    stop_with_proxy(&h);
}

/* A server of the sandbox, at every address; a client reaches it through loopback. */
static int program_that_serves_itself(void)
{
    static const uint16_t ports[] = { 80, 443, 8080 };

    for (size_t i = 0; i < ARRAY_LEN(ports); i++) {
        struct sockaddr_in any = v4("0.0.0.0", ports[i]);
        int server = socket(AF_INET, SOCK_STREAM, 0);

        if (bind(server, (struct sockaddr *)&any, sizeof(any)) < 0 || listen(server, 1) < 0)
            return 1;
        int client = connect_v4(SOCK_STREAM, "127.0.0.1", ports[i]);
        if (client < 0 || accept(server, NULL, NULL) < 0)
            return 2;
    }
    /* The proxy, not the server of the sandbox, has the invented addresses. */
    return is_echoed(connect_v4(SOCK_STREAM, "198.18.0.2", 8080)) ? 0 : 3;
}

TEST(servers_of_the_sandbox_keep_every_port_but_those_of_the_listeners)
{
    struct announced a;
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    egress_sandbox(&h, id, &r, &a, false);
    pid_t pid = start_inside(&r, program_that_serves_itself);
    serve_one(a.r.fds[EGRESS_LISTEN_ANY], "198.18.0.2", 8080);
    must_succeed(pid);
    drop_fds(&a.r);
    drop_fds(&r);
    stop_with_proxy(&h);
}

/* --- descriptors --- */

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

/* How many descriptors the process has; with `same`, how many of this socket. */
static int open_files(pid_t pid, const struct stat *same)
{
    char path[64], name[512];
    struct stat st;
    int n = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        snprintf(name, sizeof(name), "%s/%s", path, e->d_name);
        if (e->d_name[0] != '.')
            n += !same || (stat(name, &st) == 0 && st.st_ino == same->st_ino && st.st_dev == same->st_dev);
    }
    closedir(d);
    return n;
}

/* A process closes its copies after it has sent them. */
static bool closes_file(pid_t pid, const struct stat *same)
{
    uint64_t end = clock_mono_ns() + 10 * NS_PER_S;

    while (open_files(pid, same) > 0)
        if (clock_mono_ns() > end || usleep(1000) < 0)
            return false;
    return true;
}

static pid_t parent_of(pid_t pid)
{
    char path[64], line[512];
    int parent = 0;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof(line), f));
    fclose(f);
    assert_int_equal(sscanf(strrchr(line, ')'), ") %*c %d", &parent), 1);
    return parent;
}

static void check_holders(bool joinable)
{
    struct announced a;
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    egress_sandbox(&h, id, &r, &a, joinable);
    pid_t inside = pid_of(r.fds[1]), spawner = parent_of(inside);
    for (size_t i = 0; i < a.r.nfds; i++) {
        struct stat st;

        assert_int_equal(fstat(a.r.fds[i], &st), 0);
        assert_int_equal(open_files(inside, &st), 0);
        assert_true(closes_file(spawner, &st));
        assert_int_equal(open_files(h.jailer, &st), 1);
        assert_int_equal(fcntl(a.r.fds[i], F_GETFL) & O_NONBLOCK, O_NONBLOCK);
    }
    drop_fds(&a.r);
    drop_fds(&r);
    stop_with_proxy(&h);
}

TEST(no_process_but_the_jailer_and_the_proxy_holds_a_listener)
{
    check_holders(false);
    check_holders(true);
}

TEST(many_sandboxes_leave_no_descriptor_in_any_process)
{
    struct announced a;
    struct host h;
    struct reply r;
    char id[ID_SIZE];
    int jailer = 0, spawner = 0;

    egress_sandbox(&h, id, &r, &a, false);
    pid_t maker = parent_of(pid_of(r.fds[1]));
    for (int i = 0; i < 12; i++) {
        drop_fds(&a.r);
        destroy(&h, id);
        drop_fds(&r);
        if (i == 3) {
            poll(NULL, 0, 100); /* the spawner prepares the next network, with its listeners */
            jailer = open_files(h.jailer, NULL);
            spawner = open_files(maker, NULL);
        }
        create_egress(&h, id, &r, &a);
    }
    drop_fds(&a.r);
    destroy(&h, id);
    drop_fds(&r);
    poll(NULL, 0, 100);
    assert_int_equal(open_files(h.jailer, NULL), jailer);
    assert_int_equal(open_files(maker, NULL), spawner);
    stop_with_proxy(&h);
}

TEST(a_sandbox_that_dies_takes_its_listeners_back_before_its_end_is_reported)
{
    struct announced a;
    struct host h;
    struct reply r, e;
    char id[ID_SIZE];

    egress_sandbox(&h, id, &r, &a, false);
    struct stat st;
    assert_int_equal(fstat(a.r.fds[0], &st), 0);
    kill(pid_of(r.fds[1]), SIGKILL);
    receive(&h, &e);
    assert_int_equal(e.f.type, FRAME_J_EVENT);
    assert_true(readable_within(proxy, 0));
    hear_end(id);
    assert_int_equal(open_files(h.jailer, &st), 0);
    drop_fds(&a.r);
    ask(&h, FRAME_J_DESTROY, id); /* the end is announced once */
    expect(&h, FRAME_DONE);
    assert_false(readable_within(proxy, 100));
    drop_fds(&r);
    stop_with_proxy(&h);
}

/* --- joinable sandboxes --- */

static ino_t network_of(pid_t pid)
{
    char path[64];
    struct stat st;

    snprintf(path, sizeof(path), "/proc/%d/ns/net", (int)pid);
    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

TEST(a_joinable_sandbox_has_its_listeners_in_its_own_network)
{
    struct announced a, b;
    struct host h;
    struct reply r, s;
    char id[ID_SIZE], other[ID_SIZE];

    egress_sandbox(&h, id, &r, &a, true);
    create_egress(&h, other, &s, &b);
    pid_t inside = pid_of(r.fds[1]), spawner = parent_of(inside);
    assert_true(network_of(spawner) != network_of(inside) && network_of(spawner) != network_of(pid_of(s.fds[1])));
    assert_true(network_of(inside) != network_of(pid_of(s.fds[1])));
    check_every_listener(&r, &a);
    check_every_listener(&s, &b);
    must_succeed(start_inside(&r, program_that_tries_other_addresses));
    drop_fds(&a.r);
    drop_fds(&b.r);
    destroy(&h, id);
    destroy(&h, other);
    drop_fds(&r);
    drop_fds(&s);
    stop_with_proxy(&h);
}

/* --- without root --- */

static NORETURN void host_of_a_plain_user(int to_test)
{
    struct announced a;
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    egress_sandbox(&h, id, &r, &a, false);
    if (fd_send(to_test, a.m.id, sizeof(a.m.id), (int[]){ r.fds[1], a.r.fds[0], a.r.fds[1], a.r.fds[2], a.r.fds[3] }, 5,
                0) < 0)
        _exit(2);
    char go;
    (void)!read(to_test, &go, 1);
    _exit(0);
}

TEST(a_plain_user_has_the_same_listeners)
{
    struct announced a = { .m = { .carrier = EGRESS_CARRIER_TPROXY } };
    struct reply r = { 0 };
    int sv[2], fds[5];
    size_t n = 5;

    assert_int_equal(chown(state_dir, PLAIN_UID, PLAIN_UID), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(sv[0]);
        if (setgroups(0, NULL) < 0 || setresgid(PLAIN_UID, PLAIN_UID, PLAIN_UID) < 0 ||
            setresuid(PLAIN_UID, PLAIN_UID, PLAIN_UID) < 0 || prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0 ||
            prctl(PR_SET_PDEATHSIG, SIGKILL) < 0)
            _exit(1); /* the kernel gives the files of a process that is not dumpable to root */
        host_of_a_plain_user(sv[1]);
    }
    close(sv[1]);
    assert_true(readable_within(sv[0], PATIENCE_MS));
    if (fd_recv(sv[0], a.m.id, sizeof(a.m.id), fds, &n, 0) <= 0) {
        (void)waitpid(pid, NULL, 0);
        fail_msg("a plain user's jailer made no sandbox with a network");
    }
    assert_int_equal(n, 5);
    r.fds[1] = fds[0];
    memcpy(a.r.fds, fds + 1, 4 * sizeof(int));
    check_every_listener(&r, &a);
    must_succeed(start_inside(&r, program_that_tries_other_addresses));
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
    close(sv[0]);
    must_succeed(pid);
    assert_int_equal(chown(state_dir, 0, 0), 0);
}

/* --- a kernel without TPROXY --- */

/* From now on this process and its children cannot reach nftables, as on a kernel without it. */
static void remove_nftables(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_socket, 0, 5),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_NETLINK, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NETLINK_NETFILTER, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPROTONOSUPPORT),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = { ARRAY_LEN(code), code };

    HOLDS_INSIDE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    errno = 0;
    HOLDS_INSIDE(socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER) == -1 && errno == EPROTONOSUPPORT);
}

static int program_with_the_proxy_only(void)
{
    return !is_echoed(connect_v4(SOCK_STREAM, "127.0.0.1", EGRESS_PROXY_PORT)) ? 1
           : !is_echoed(connect_v4(SOCK_STREAM, "127.0.0.1", 53))              ? 2
           : refusal(connect_v4(SOCK_STREAM, "198.18.0.2", 443)) != EACCES     ? 3
           : refusal(connect_v4(SOCK_STREAM, "127.0.0.1", 1)) != ECONNREFUSED  ? 4
           : refusal(connect_v6("::ffff:198.18.0.2", 443)) != EACCES           ? 5
                                                                               : 0;
}

TEST(a_kernel_without_tproxy_gives_the_proxy_and_the_resolver_and_reports_it)
{
    int status;
    pid_t pid = fork(); /* the filter would stay */

    assert_true(pid >= 0);
    if (pid == 0) {
        struct announced a;
        struct host h;
        struct reply r;
        char id[ID_SIZE];

        remove_nftables();
        start_with_proxy(&h);
        ask_egress_template(&h, "t", true, false);
        expect(&h, FRAME_J_OK);
        create_egress(&h, id, &r, &a); /* compares the carrier of J_CREATED with that of E_LISTEN */
        HOLDS_INSIDE(a.m.carrier == EGRESS_CARRIER_PROXY && a.r.nfds == 3);
        pid_t program = start_inside(&r, program_with_the_proxy_only);
        serve_one(a.r.fds[EGRESS_LISTEN_PROXY], "127.0.0.1", EGRESS_PROXY_PORT);
        serve_one(a.r.fds[EGRESS_LISTEN_DNS_TCP], "127.0.0.1", 53);
        HOLDS_INSIDE(waitpid(program, &status, 0) == program && status == 0);
        destroy(&h, id);
        stop_with_proxy(&h);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* --- a proxy that is restarted --- */

static pid_t service;
static char jailer_path[96], proxy_path[96];

static int listen_as_proxy(void)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

    assert_true(str_copy(at.sun_path, sizeof(at.sun_path), proxy_path));
    (void)unlink(proxy_path);
    assert_int_equal(bind(sock, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(sock, 4), 0);
    return sock;
}

static int accept_jailer(int listener)
{
    assert_true(readable_within(listener, 20000));
    int sock = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    assert_true(sock >= 0);
    return sock;
}

static void service_start(struct host *h)
{
    struct jailer_settings s = { .runtime_fd = open(getenv("COVE_RUNTIME"), O_RDONLY | O_CLOEXEC),
                                 .state_dir = state_dir,
                                 .socket = jailer_path,
                                 .egress = proxy_path };

    assert_true(s.runtime_fd >= 0);
    snprintf(jailer_path, sizeof(jailer_path), "%s/jailer.sock", state_dir);
    snprintf(proxy_path, sizeof(proxy_path), "%s/egress.sock", state_dir);
    service = fork();
    assert_true(service >= 0);
    if (service == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* a failed test must not leave it running */
        _exit(jailer_service(&s));
    }
    close(s.runtime_fd);
    *h = (struct host){ .sock = -1, .jailer = service };
    for (int i = 0; i < 500 && unix_connect(jailer_path, &h->sock, NULL, NULL) < 0; i++)
        poll(NULL, 0, 10);
    assert_true(h->sock >= 0);
}

static void service_stop(struct host *h)
{
    int status;

    close(h->sock);
    kill(service, SIGTERM);
    assert_int_equal(waitpid(service, &status, 0), service);
    assert_int_equal(status, 0);
    (void)unlink(proxy_path);
}

static int program_that_connects_once(void)
{
    return is_echoed(connect_v4(SOCK_STREAM, "198.18.0.5", 443)) ? 0 : 1;
}

TEST(a_restarted_proxy_gets_every_listener_again_and_the_connections_that_waited)
{
    struct announced a, b, again;
    struct host h;
    struct reply r, s;
    char id[ID_SIZE], other[ID_SIZE];
    struct stat before, after;

    service_start(&h);
    int listener = listen_as_proxy();
    proxy = accept_jailer(listener);
    ask_egress_template(&h, "t", true, false);
    expect(&h, FRAME_J_OK);
    create_egress(&h, id, &r, &a);
    create_egress(&h, other, &s, &b);
    assert_int_equal(fstat(a.r.fds[EGRESS_LISTEN_ANY], &before), 0);

    drop_fds(&a.r); /* the proxy dies */
    drop_fds(&b.r);
    close(proxy);
    close(listener);
    pid_t waiting = start_inside(&r, program_that_connects_once);
    poll(NULL, 0, 200);
    ask(&h, FRAME_J_DESTROY, other); /* ends meanwhile: not announced again */
    expect(&h, FRAME_DONE);

    listener = listen_as_proxy();
    proxy = accept_jailer(listener);
    hear_listeners(&again, id);
    assert_int_equal(fstat(again.r.fds[EGRESS_LISTEN_ANY], &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    serve_one(again.r.fds[EGRESS_LISTEN_ANY], "198.18.0.5", 443);
    must_succeed(waiting);
    assert_false(readable_within(proxy, 100));
    drop_fds(&again.r);
    destroy(&h, id);
    drop_fds(&r);
    drop_fds(&s);
    close(proxy);
    close(listener);
    service_stop(&h);
}

TEST(a_sandbox_made_while_the_proxy_restarts_is_announced_to_the_next_one)
{
    struct announced a;
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    service_start(&h); /* the proxy was not started yet */
    ask_egress_template(&h, "t", true, false);
    expect(&h, FRAME_J_OK);
    create_egress(&h, id, &r, NULL);
    int listener = listen_as_proxy();
    proxy = accept_jailer(listener);
    hear_listeners(&a, id);
    drop_fds(&a.r);
    drop_fds(&r);
    close(proxy);
    close(listener);
    service_stop(&h);
}

/* --- refusals --- */

TEST(a_network_is_refused_where_no_proxy_can_serve_it)
{
    struct jail_create c = a_request();
    struct host h;

    host_start(&h); /* without a proxy */
    ask_egress_template(&h, "t", true, false);
    expect(&h, FRAME_J_OK);
    c.network = 1;
    ask_create(&h, &c, NULL, 0);
    expect_error(&h, ERR_NETWORK_UNAVAILABLE);
    host_stop(&h);
    assert_int_equal(leaves(c.id), 0);

    service_start(&h); /* its proxy never starts */
    ask_egress_template(&h, "t", true, false);
    expect(&h, FRAME_J_OK);
    poll(NULL, 0, 5500);
    ask_create(&h, &c, NULL, 0);
    expect_error(&h, ERR_NETWORK_UNAVAILABLE);
    service_stop(&h);
}

static int program_that_is_refused(void)
{
    return refusal(connect_v4(SOCK_STREAM, "198.18.0.2", 443)) != ECONNREFUSED                ? 1
           : refusal(connect_v4(SOCK_STREAM, "127.0.0.1", EGRESS_PROXY_PORT)) != ECONNREFUSED ? 2
           : refusal(connect_v4(SOCK_STREAM, "192.0.2.1", 443)) != EACCES                     ? 3
                                                                                              : 0;
}

TEST(without_its_proxy_a_run_has_no_listeners_and_connections_are_refused_at_once)
{
    struct announced a;
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    egress_sandbox(&h, id, &r, &a, false);
    drop_fds(&a.r);
    close(proxy);
    poll(NULL, 0, 100);
    must_succeed(start_inside(&r, program_that_is_refused));
    ask(&h, FRAME_J_DESTROY, id);
    expect(&h, FRAME_DONE);
    drop_fds(&r);
    host_stop(&h);
}

TEST(a_proxy_that_ended_with_its_client_is_not_expected_back)
{
    struct jail_create c = a_request();
    struct host h;

    start_with_proxy(&h);
    ask_egress_template(&h, "t", true, false);
    expect(&h, FRAME_J_OK);
    close(proxy);
    poll(NULL, 0, 100);
    c.network = 1;
    ask_create(&h, &c, NULL, 0);
    expect_error(&h, ERR_NETWORK_UNAVAILABLE);
    host_stop(&h);
}

TEST(a_request_must_name_the_network_of_its_template)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct jail_template t = { .name = "b", .driver = DRIVER_BWRAP, .profile = PROFILE_BASE, .egress = 1 };
    struct jail_create c = a_request();
    struct host h;

    start_with_proxy(&h);
    ask_egress_template(&h, "t", true, false);
    expect(&h, FRAME_J_OK);
    ask_egress_template(&h, "none", false, false);
    expect(&h, FRAME_J_OK);
    ask_egress_template(&h, "t", false, false);
    expect_error(&h, ERR_INVALID); /* the name is taken by a template with a network */
    ask_create(&h, &c, NULL, 0);
    expect_error(&h, ERR_INVALID);
    c.network = 1;
    assert_true(str_copy(c.template, sizeof(c.template), "none"));
    ask_create(&h, &c, NULL, 0);
    expect_error(&h, ERR_INVALID);
    send_frame(&h, FRAME_J_TEMPLATE, out, jail_template_encode(&t, out, NULL), NULL, 0);
    expect_error(&h, ERR_DRIVER_UNSUPPORTED);
    assert_false(readable_within(proxy, 0));
    stop_with_proxy(&h);
}

/* --- names --- */

static void say(int control, uint8_t type, uint32_t stream, const uint8_t *payload, int len)
{
    uint8_t packet[FRAME_MAX];

    assert_true(len >= 0);
    frame_header(packet, &(struct frame){ .type = type, .stream = stream, .len = (uint32_t)len });
    memcpy(packet + FRAME_HEADER, payload, (size_t)len);
    assert_true(fd_send(control, packet, FRAME_HEADER + (size_t)len, NULL, 0, 0) > 0);
}

/* Runs a script in the sandbox as its user; returns the exit code. */
static int run_inside(int control, const char *id, const char *script)
{
    static uint8_t out[FRAME_PAYLOAD_MAX];
    const char *const env[] = { "PATH=/usr/local/bin:/usr/bin:/bin", NULL };
    const char *const argv[] = { "sh", "-c", script, NULL };
    struct rt_claim claim = { .nrules = 2, .env = env };
    struct rt_exec x = { .cwd = "", .argv = argv };
    struct host as_client = { .sock = control };
    struct rt_exit e;
    struct reply r;

    claim.rules[0] = (struct rt_rule){ RT_ACCESS_READ_EXEC, "/" };
    claim.rules[1] = (struct rt_rule){ RT_ACCESS_DEVICE, "/dev" };
    memcpy(claim.id, id, sizeof(claim.id));
    say(control, FRAME_CLAIM, 0, out, rt_claim_encode(&claim, out, NULL));
    say(control, FRAME_EXEC, 2, out, rt_exec_encode(&x, out, NULL));
    do
        receive(&as_client, &r);
    while (r.f.type != FRAME_EXIT);
    assert_int_equal(rt_exit_decode(&r.f, &e, NULL), 0);
    return e.code;
}

TEST(a_name_is_asked_of_the_proxy_with_a_network_and_does_not_exist_without)
{
    struct jail_create c = a_request();
    struct announced a;
    struct host h;
    struct reply r, s;
    char id[ID_SIZE], query[512];

    egress_sandbox(&h, id, &r, &a, false);
    /* The query is not answered, so the look-up ends with its time limit. */
    assert_int_not_equal(
        run_inside(r.fds[0], id,
                   "grep -q '^nameserver 127.0.0.1$' /etc/resolv.conf && ! touch /etc/x 2>/dev/null && "
                   "getent hosts name.example.org"),
        0);
    ssize_t n = recv(a.r.fds[EGRESS_LISTEN_DNS_UDP], query, sizeof(query), MSG_DONTWAIT);
    assert_true(n > 12 && memmem(query, (size_t)n, "\4name\7example\3org", 17));

    ask_egress_template(&h, "none", false, false);
    expect(&h, FRAME_J_OK);
    assert_true(str_copy(c.template, sizeof(c.template), "none"));
    ask_create(&h, &c, NULL, 0);
    answer_of(&h, &s);
    assert_int_equal(s.f.type, FRAME_J_CREATED);
    greet(s.fds[0]);
    assert_int_equal(
        run_inside(s.fds[0], c.id,
                   "! grep -q ^nameserver /etc/resolv.conf && getent hosts localhost >/dev/null || exit 9; "
                   "timeout 5 getent hosts name.example.org; test $? = 2"),
        0);
    drop_fds(&a.r);
    drop_fds(&r);
    drop_fds(&s);
    stop_with_proxy(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(connections_from_inside_arrive_at_the_listeners_with_their_destination),
        RUN(every_other_address_is_still_prohibited),
        RUN(servers_of_the_sandbox_keep_every_port_but_those_of_the_listeners),
        RUN(no_process_but_the_jailer_and_the_proxy_holds_a_listener),
        RUN(many_sandboxes_leave_no_descriptor_in_any_process),
        RUN(a_sandbox_that_dies_takes_its_listeners_back_before_its_end_is_reported),
        RUN(a_joinable_sandbox_has_its_listeners_in_its_own_network),
        RUN(a_plain_user_has_the_same_listeners),
        RUN(a_kernel_without_tproxy_gives_the_proxy_and_the_resolver_and_reports_it),
        RUN(a_restarted_proxy_gets_every_listener_again_and_the_connections_that_waited),
        RUN(a_sandbox_made_while_the_proxy_restarts_is_announced_to_the_next_one),
        RUN(a_network_is_refused_where_no_proxy_can_serve_it),
        RUN(without_its_proxy_a_run_has_no_listeners_and_connections_are_refused_at_once),
        RUN(a_proxy_that_ended_with_its_client_is_not_expected_back),
        RUN(a_request_must_name_the_network_of_its_template),
        RUN(a_name_is_asked_of_the_proxy_with_a_network_and_does_not_exist_without),
    };

    if (geteuid() != 0) {
        printf("1..0 # SKIP the native driver requires root\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
