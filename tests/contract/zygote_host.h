/* zygote_host.h - a client of the jailer that requests zygotes and their forks. */
#pragma once

#include "jail_host.h"

/* `variable` names the environment variable with the directory. */
static inline void start_with_kernels(struct host *h, const char *variable)
{
    struct jailer_settings s = { .runtime_fd = open(getenv("COVE_RUNTIME"), O_RDONLY | O_CLOEXEC),
                                 .kernels_fd = open(getenv(variable), O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                                 .state_dir = state_dir };
    struct err err = { 0 };

    assert_true(s.runtime_fd >= 0 && s.kernels_fd >= 0);
    h->stream = 0;
    if (jailer_fork(&s, &h->sock, &h->jailer, &err) < 0)
        fail_msg("%s", err.msg);
    close(s.runtime_fd);
    close(s.kernels_fd);
}

static inline void ask_joinable(struct host *h, const char *name, bool joinable)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct jail_template t = { .profile = PROFILE_BASE, .joinable = joinable };

    assert_true(str_copy(t.name, sizeof(t.name), name));
    send_frame(h, FRAME_J_TEMPLATE, out, jail_template_encode(&t, out, NULL), NULL, 0);
    expect(h, FRAME_J_OK);
}

static inline void ask_zygote(struct host *h, const char *template, const char *language, const char *preload)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct jail_zygote z;

    memset(&z, 0, sizeof(z));
    assert_true(str_copy(z.template, sizeof(z.template), template) &&
                str_copy(z.language, sizeof(z.language), language) && str_copy(z.preload, sizeof(z.preload), preload));
    send_frame(h, FRAME_J_ZYGOTE, out, jail_zygote_encode(&z, out, NULL), NULL, 0);
}

static inline void sandbox(struct host *h, char id[ID_SIZE], struct reply *r)
{
    struct jail_create c = a_request();

    ask_create(h, &c, NULL, 0);
    answer_of(h, r);
    assert_int_equal(r->f.type, FRAME_J_CREATED);
    memcpy(id, c.id, ID_SIZE);
    greet(r->fds[0]);
}

static inline void join(struct host *h, const char *id, struct reply *r)
{
    ask(h, FRAME_J_JOIN, id);
    answer_of(h, r);
    assert_int_equal(r->f.type, FRAME_J_OK);
    assert_int_equal(r->nfds, 3);
}
