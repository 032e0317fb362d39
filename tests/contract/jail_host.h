/* jail_host.h - a test as a client of the jailer: requests over the real socket, answers with their
 * descriptors. Needs root. */
#pragma once

#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "host/jailer/jailer.h"
#include "policy/limits.h"
#include "policy/syscalls.h"
#include "core/wire/jail.h"
#include "core/wire/rt.h"
#include "tests/contract/driver_under_test.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define PATIENCE_MS 60000 /* machines that build and test at the same time are slow, emulated ones too */

static char state_dir[64];

struct host {
    int sock;
    pid_t jailer;
    uint32_t stream;
};

struct reply {
    uint8_t bytes[FRAME_MAX];
    struct frame f;
    int fds[FD_PASS_MAX];
    size_t nfds;
};

static inline void host_start(struct host *h)
{
    struct jailer_settings s = { .runtime_fd = open(getenv("COVE_RUNTIME"), O_RDONLY | O_CLOEXEC),
                                 .state_dir = state_dir };
    struct err err = { 0 };

    assert_true(s.runtime_fd >= 0);
    h->stream = 0;
    if (jailer_fork(&s, &h->sock, &h->jailer, &err) < 0)
        fail_msg("%s", err.msg);
    close(s.runtime_fd);
}

/* Closes the connection; the jailer must end by itself and remove everything. */
static inline void host_stop(struct host *h)
{
    int status;

    close(h->sock);
    assert_int_equal(waitpid(h->jailer, &status, 0), h->jailer);
    assert_int_equal(status, 0);
}

static inline void send_frame(struct host *h, uint8_t type, const uint8_t *payload, int len, const int *fds,
                              size_t nfds)
{
    static uint8_t packet[FRAME_MAX];

    assert_true(len >= 0);
    h->stream += 2;
    frame_header(packet, &(struct frame){ .type = type, .stream = h->stream, .len = (uint32_t)len });
    if (len)
        memcpy(packet + FRAME_HEADER, payload, (size_t)len);
    assert_int_equal(fd_send(h->sock, packet, FRAME_HEADER + (size_t)len, fds, nfds, 0), (int)FRAME_HEADER + len);
}

static inline void receive(struct host *h, struct reply *r)
{
    struct pollfd p = { .fd = h->sock, .events = POLLIN };
    struct err err;

    r->nfds = FD_PASS_MAX;
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
    ssize_t n = fd_recv(h->sock, r->bytes, sizeof(r->bytes), r->fds, &r->nfds, 0);
    assert_true(n > 0);
    assert_int_equal(frame_parse(r->bytes, (size_t)n, &r->f, &err), 0);
}

static inline void drop_fds(struct reply *r)
{
    for (size_t i = 0; i < r->nfds; i++)
        close(r->fds[i]);
}

/* The answer to the last request; events are skipped. */
static inline void answer_of(struct host *h, struct reply *r)
{
    do
        receive(h, r);
    while (r->f.type == FRAME_J_EVENT);
    assert_int_equal(r->f.stream, h->stream);
}

static inline void expect(struct host *h, uint8_t type)
{
    struct reply r;
    struct rt_error e = { 0 };

    answer_of(h, &r);
    if (r.f.type == FRAME_J_ERROR)
        (void)rt_error_decode(&r.f, &e, NULL);
    if (r.f.type != type)
        fail_msg("%s instead of %s: %s", frame_name(r.f.type), frame_name(type), e.msg);
    drop_fds(&r);
}

static inline void expect_error(struct host *h, enum err_id id)
{
    struct reply r;
    struct rt_error e;

    answer_of(h, &r);
    assert_int_equal(r.f.type, FRAME_J_ERROR);
    assert_int_equal(rt_error_decode(&r.f, &e, NULL), 0);
    if (e.id != (uint32_t)id)
        fail_msg("error %u (%s) instead of %d", e.id, e.msg, id);
}

static inline void ask_filter(struct host *h, const char *name, uint32_t grants, uint64_t deny)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct jail_template t = {
        .driver = (uint8_t)driver_under_test(), .profile = PROFILE_BASE, .grants = grants, .deny = { [1] = deny }
    };

    assert_true(str_copy(t.name, sizeof(t.name), name));
    send_frame(h, FRAME_J_TEMPLATE, out, jail_template_encode(&t, out, NULL), NULL, 0);
}

static inline void ask_template(struct host *h, const char *name)
{
    ask_filter(h, name, 0, 0);
}

static inline struct jail_create a_request(void)
{
    struct jail_create c = { .template = "t", .hostname = "cove", .nlimits = LIMIT_COUNT };
    struct limits l;

    id_new("sb", c.id);
    limits_default(&l);
    memcpy(c.limits, l.v, sizeof(l.v));
    return c;
}

static inline void ask_create(struct host *h, const struct jail_create *c, const int *fds, size_t nfds)
{
    uint8_t out[FRAME_PAYLOAD_MAX];

    send_frame(h, FRAME_J_CREATE, out, jail_create_encode(c, out, NULL), fds, nfds);
}

/* The encoder refuses invalid values; a hostile client does not use it. */
static inline void ask_create_spoilt(struct host *h, const struct jail_create *c, const char *good, const char *bad,
                                     const int *fds, size_t nfds)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    int len = jail_create_encode(c, out, NULL);

    assert_true(len > 0);
    assert_int_equal(strlen(good), strlen(bad));
    uint8_t *at = memmem(out, (size_t)len, good, strlen(good));
    assert_non_null(at);
    memcpy(at, bad, strlen(bad));
    send_frame(h, FRAME_J_CREATE, out, len, fds, nfds);
}

static inline void ask(struct host *h, uint8_t type, const char *id)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct jail_id m;

    assert_true(str_copy(m.id, sizeof(m.id), id));
    send_frame(h, type, out, jail_id_encode(&m, out, NULL), NULL, 0);
}

static inline void ask_keep(struct host *h, const char *id, int control)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct jail_id m;

    assert_true(str_copy(m.id, sizeof(m.id), id));
    send_frame(h, FRAME_J_KEEP, out, jail_id_encode(&m, out, NULL), &control, 1);
}

static inline void greet(int control)
{
    uint8_t packet[FRAME_MAX];
    struct rt_hello hello = { .version = WIRE_VERSION, .epoch = 7 };
    int len = rt_hello_encode(&hello, packet + FRAME_HEADER, NULL);
    struct pollfd p = { .fd = control, .events = POLLIN };

    frame_header(packet, &(struct frame){ .type = FRAME_HELLO, .len = (uint32_t)len });
    assert_true(fd_send(control, packet, FRAME_HEADER + (size_t)len, NULL, 0, 0) > 0);
    assert_int_equal(poll(&p, 1, PATIENCE_MS), 1);
    assert_true(recv(control, packet, sizeof(packet), 0) > 0);
    assert_int_equal(packet[4], FRAME_HELLO);
}

/* A template and one live sandbox, whose runtime has answered. */
static inline void one_sandbox(struct host *h, char id[ID_SIZE], struct reply *r)
{
    struct jail_create c = a_request();

    host_start(h);
    ask_template(h, "t");
    expect(h, FRAME_J_OK);
    ask_create(h, &c, NULL, 0);
    answer_of(h, r);
    assert_int_equal(r->f.type, FRAME_J_CREATED);
    assert_in_range(r->nfds, 2, 4);
    memcpy(id, c.id, ID_SIZE);
    greet(r->fds[0]);
}

/* The directory below each cgroup root that holds the leaves of this process's jailers. */
static inline const char *cgroup_parent(void)
{
    const char *given = getenv("COVE_CGROUP_PARENT");

    return given ? given : "cove";
}

static inline int leaves(const char *id)
{
    DIR *d = opendir("/sys/fs/cgroup");
    char path[512];
    int n = 0;

    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;

        snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/%s/%s", e->d_name, cgroup_parent(), id);
        n += stat(path, &st) == 0;
    }
    if (d)
        closedir(d);
    snprintf(path, sizeof(path), "/sys/fs/cgroup/%s/%s", cgroup_parent(), id);
    struct stat st;
    return n + (stat(path, &st) == 0);
}

static inline bool readable_within(int fd, int ms)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    return poll(&p, 1, ms) == 1;
}

static inline int set_up(void **state UNUSED)
{
    strcpy(state_dir, "/run/cove-test-XXXXXX");
    return mkdtemp(state_dir) ? 0 : -1;
}

static inline int tear_down(void **state UNUSED)
{
    char path[128];

    snprintf(path, sizeof(path), "%s/kept", state_dir);
    rmdir(path);
    return rmdir(state_dir); /* fails if a socket or anything else remains */
}
