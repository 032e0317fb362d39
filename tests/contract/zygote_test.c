/* The jailer and zygotes: a member for a sandbox by two requests, and nothing that a zygote does hurts anybody but the
 * hosts of its own template. */
#include "jail_host.h"

#include <errno.h>

static const char *kernels_dir = "COVE_TEST_KERNELS"; /* the variable that names it */

static void start_with_kernels(struct host *h)
{
    struct jailer_settings s = { .runtime_fd = open(getenv("COVE_RUNTIME"), O_RDONLY | O_CLOEXEC),
                                 .kernels_fd = open(getenv(kernels_dir), O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                                 .state_dir = state_dir };
    struct err err = { 0 };

    assert_true(s.runtime_fd >= 0 && s.kernels_fd >= 0);
    h->stream = 0;
    if (jailer_fork(&s, &h->sock, &h->jailer, &err) < 0)
        fail_msg("%s", err.msg);
    close(s.runtime_fd);
    close(s.kernels_fd);
}

static void ask_joinable(struct host *h, const char *name, bool joinable)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct jail_template t = { .profile = PROFILE_BASE, .joinable = joinable };

    assert_true(str_copy(t.name, sizeof(t.name), name));
    send_frame(h, FRAME_J_TEMPLATE, out, jail_template_encode(&t, out, NULL), NULL, 0);
    expect(h, FRAME_J_OK);
}

static void ask_zygote(struct host *h, const char *template, const char *language, const char *preload)
{
    uint8_t out[FRAME_PAYLOAD_MAX];
    struct jail_zygote z;

    memset(&z, 0, sizeof(z));
    assert_true(str_copy(z.template, sizeof(z.template), template) &&
                str_copy(z.language, sizeof(z.language), language) && str_copy(z.preload, sizeof(z.preload), preload));
    send_frame(h, FRAME_J_ZYGOTE, out, jail_zygote_encode(&z, out, NULL), NULL, 0);
}

static void sandbox(struct host *h, char id[ID_SIZE], struct reply *r)
{
    struct jail_create c = a_request();

    ask_create(h, &c, NULL, 0);
    answer_of(h, r);
    assert_int_equal(r->f.type, FRAME_J_CREATED);
    memcpy(id, c.id, ID_SIZE);
    greet(r->fds[0]);
}

static void begin(struct host *h, const char *how, char id[ID_SIZE], struct reply *r)
{
    start_with_kernels(h);
    ask_joinable(h, "t", true);
    ask_zygote(h, "t", "test", how);
    expect(h, FRAME_J_OK);
    sandbox(h, id, r);
}

static void join(struct host *h, const char *id, struct reply *r)
{
    ask(h, FRAME_J_JOIN, id);
    answer_of(h, r);
    assert_int_equal(r->f.type, FRAME_J_OK);
    assert_int_equal(r->nfds, 3);
}

/* One line from a descriptor. */
static const char *line(int fd)
{
    static char text[16384];
    size_t n = 0;

    while (n < sizeof(text) - 1) {
        assert_true(readable_within(fd, 60000));
        if (read(fd, text + n, 1) != 1)
            break;
        if (text[n++] == '\n')
            break;
    }
    text[n] = '\0';
    return text;
}

/* What it said until the end. */
static const char *lines(int fd)
{
    static char text[4096];
    size_t n = 0;

    for (const char *l; n < sizeof(text) - 1 && *(l = line(fd));)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", l);
    return text;
}

static void put(int fd, const char *what)
{
    assert_int_equal(write(fd, what, strlen(what)), (int)strlen(what));
}

TEST(a_member_joins_and_answers_over_its_own_descriptors)
{
    struct host h;
    struct reply r, m;
    char id[ID_SIZE];

    begin(&h, "plain", id, &r);
    join(&h, id, &m);
    assert_true(str_starts(line(m.fds[0]), "ready "));
    put(m.fds[0], "u");
    assert_string_equal(line(m.fds[0]), "uid 1000\n");
    put(m.fds[0], "m");
    assert_string_equal(line(m.fds[0]), "mount -1\n");
    put(m.fds[0], "p");
    assert_string_equal(line(m.fds[1]), "printed\n");
    drop_fds(&m);
    drop_fds(&r);
    host_stop(&h);
    assert_int_equal(leaves(id), 0);
}

TEST(many_members_of_one_zygote_live_in_one_sandbox_and_in_several)
{
    struct host h;
    struct reply r[3], m[6];
    char id[3][ID_SIZE];

    begin(&h, "plain", id[0], &r[0]);
    sandbox(&h, id[1], &r[1]);
    sandbox(&h, id[2], &r[2]);
    for (int i = 0; i < 6; i++)
        join(&h, id[i % 3], &m[i]);
    for (int i = 0; i < 6; i++) {
        assert_true(str_starts(line(m[i].fds[0]), "ready "));
        put(m[i].fds[0], "u");
    }
    for (int i = 0; i < 6; i++) {
        assert_string_equal(line(m[i].fds[0]), "uid 1000\n");
        drop_fds(&m[i]);
    }
    for (int i = 0; i < 3; i++)
        drop_fds(&r[i]);
    host_stop(&h);
}

TEST(members_end_with_their_sandbox)
{
    struct host h;
    struct reply r, m;
    char id[ID_SIZE], c;

    begin(&h, "plain", id, &r);
    join(&h, id, &m);
    assert_true(str_starts(line(m.fds[0]), "ready "));
    ask(&h, FRAME_J_DESTROY, id);
    expect(&h, FRAME_DONE);
    assert_int_equal(read(m.fds[1], &c, 1), 0);
    drop_fds(&m);
    drop_fds(&r);
    host_stop(&h);
    assert_int_equal(leaves(id), 0);
}

TEST(what_a_zygote_could_not_load_is_told_in_its_words)
{
    struct host h;
    struct reply r;
    struct rt_error e;

    start_with_kernels(&h);
    ask_joinable(&h, "t", true);
    ask_zygote(&h, "t", "test", "fails");
    answer_of(&h, &r);
    assert_int_equal(r.f.type, FRAME_J_ERROR);
    assert_int_equal(rt_error_decode(&r.f, &e, NULL), 0);
    assert_string_equal(e.msg, "no module named 'nonsense'");
    ask_zygote(&h, "t", "test", "dies");
    expect_error(&h, ERR_LOST);
    ask_zygote(&h, "t", "none", "plain"); /* no such program */
    expect_error(&h, ERR_LOST);
    host_stop(&h);
}

TEST(requests_that_make_no_sense_are_refused)
{
    struct host h;
    struct reply r;
    char id[ID_SIZE];

    start_with_kernels(&h);
    ask_joinable(&h, "t", true);
    ask_joinable(&h, "other", false);
    ask_zygote(&h, "nobody", "test", "plain");
    expect_error(&h, ERR_MISSING);
    ask_zygote(&h, "other", "test", "plain");
    expect_error(&h, ERR_INVALID);
    ask_zygote(&h, "t", "../test", "plain");
    expect_error(&h, ERR_INVALID);
    ask_zygote(&h, "t", "", "plain");
    expect_error(&h, ERR_INVALID);
    sandbox(&h, id, &r);
    ask(&h, FRAME_J_JOIN, id); /* no zygote yet */
    expect_error(&h, ERR_MISSING);
    drop_fds(&r);
    host_stop(&h);
}

TEST(a_zygote_that_lies_is_ended_and_the_next_one_works)
{
    struct host h;
    struct reply r, m;
    char id[ID_SIZE];

    begin(&h, "lies", id, &r);
    ask(&h, FRAME_J_JOIN, id);
    expect_error(&h, ERR_LOST);
    ask(&h, FRAME_J_JOIN, id);
    expect_error(&h, ERR_MISSING);
    ask_zygote(&h, "t", "test", "plain");
    expect(&h, FRAME_J_OK);
    join(&h, id, &m);
    assert_true(str_starts(line(m.fds[0]), "ready "));
    drop_fds(&m);
    drop_fds(&r);
    host_stop(&h);
}

TEST(a_new_generation_takes_over_and_members_of_the_old_one_live_on)
{
    struct host h;
    struct reply r, old, new;
    char id[ID_SIZE];

    begin(&h, "plain", id, &r);
    join(&h, id, &old);
    assert_true(str_starts(line(old.fds[0]), "ready "));
    ask_zygote(&h, "t", "test", "plain");
    expect(&h, FRAME_J_OK);
    join(&h, id, &new);
    assert_true(str_starts(line(new.fds[0]), "ready "));
    put(old.fds[0], "u");
    assert_string_equal(line(old.fds[0]), "uid 1000\n");
    drop_fds(&old);
    drop_fds(&new);
    drop_fds(&r);
    host_stop(&h);
}

/* --- the real one --- */

static int python(void **state)
{
    kernels_dir = "COVE_KERNELS";
    return set_up(state);
}

static int no_python(void **state)
{
    kernels_dir = "COVE_TEST_KERNELS";
    return tear_down(state);
}

static void must_hear(const struct reply *m, const char *what)
{
    char said[1024];

    snprintf(said, sizeof(said), "%s", line(m->fds[0]));
    if (!strstr(said, what))
        fail_msg("'%s' instead of %s; %s", said, what, said[0] ? "" : lines(m->fds[2]));
}

static void begin_python(struct host *h, const char *preload, char id[ID_SIZE], struct reply *r)
{
    start_with_kernels(h);
    ask_joinable(h, "t", true);
    ask_zygote(h, "t", "python", preload);
    expect(h, FRAME_J_OK);
    sandbox(h, id, r);
}

/* The text of the result of an expression. */
static void value_of(int kernel, const char *code, char *ret, size_t cap)
{
    char request[512];
    const char *said;

    snprintf(request, sizeof(request), "{\"op\":\"execute\",\"id\":\"1\",\"code\":\"%s\"}\n", code);
    put(kernel, request);
    while (!strstr(said = line(kernel), "\"event\": \"result\""))
        if (strstr(said, "\"event\": \"finished\"") || strstr(said, "\"event\": \"error\""))
            fail_msg("%s instead of a result", said);
    const char *at = strstr(said, "\"text/plain\": \"");
    assert_non_null(at);
    at += strlen("\"text/plain\": \"");
    snprintf(ret, cap, "%.*s", (int)strcspn(at, "\""), at);
    while (!strstr(line(kernel), "\"event\": \"finished\""))
        ;
}

TEST(a_python_member_runs_cells_and_prints_where_it_should)
{
    struct host h;
    struct reply r, m;
    char id[ID_SIZE], value[128];

    begin_python(&h, "json,decimal", id, &r);
    join(&h, id, &m);
    must_hear(&m, "\"event\": \"ready\"");
    value_of(m.fds[0], "6 * 7", value, sizeof(value));
    assert_string_equal(value, "42");
    value_of(m.fds[0], "import sys; 'decimal' in sys.modules", value, sizeof(value));
    assert_string_equal(value, "True");
    value_of(m.fds[0], "import os; print('printed'); os.getuid()", value, sizeof(value));
    assert_string_equal(value, "1000");
    assert_string_equal(line(m.fds[1]), "printed\n");
    drop_fds(&m);
    drop_fds(&r);
    host_stop(&h);
}

TEST(siblings_of_one_zygote_do_not_draw_the_same_numbers)
{
    static const char *const draws[] = { "import random; random.getrandbits(60)",
                                         "import ssl; int.from_bytes(ssl.RAND_bytes(8))",
                                         "import uuid; uuid.uuid4().int", "import tempfile; hash(tempfile.mktemp())" };
    struct host h;
    struct reply r[2], m[2];
    char id[2][ID_SIZE], value[2][128];

    begin_python(&h, "random,ssl,uuid,tempfile", id[0], &r[0]);
    sandbox(&h, id[1], &r[1]);
    for (int i = 0; i < 2; i++) {
        join(&h, id[i], &m[i]);
        must_hear(&m[i], "\"event\": \"ready\"");
    }
    value_of(m[0].fds[0], "import os; os.getpid()", value[0], sizeof(value[0]));
    value_of(m[1].fds[0], "import os; os.getpid()", value[1], sizeof(value[1]));
    assert_string_equal(value[0], value[1]); /* the number by which OpenSSL would notice a fork is the same */
    for (size_t d = 0; d < ARRAY_LEN(draws); d++) {
        for (int i = 0; i < 2; i++)
            value_of(m[i].fds[0], draws[d], value[i], sizeof(value[i]));
        if (str_eq(value[0], value[1]))
            fail_msg("%s: both drew %s", draws[d], value[0]);
    }
    for (int i = 0; i < 2; i++) {
        drop_fds(&m[i]);
        drop_fds(&r[i]);
    }
    host_stop(&h);
}

TEST(a_module_that_cannot_be_imported_is_named)
{
    struct host h;
    struct reply r;
    struct rt_error e;

    start_with_kernels(&h);
    ask_joinable(&h, "t", true);
    ask_zygote(&h, "t", "python", "json,nonsense");
    answer_of(&h, &r);
    assert_int_equal(r.f.type, FRAME_J_ERROR);
    assert_int_equal(rt_error_decode(&r.f, &e, NULL), 0);
    assert_string_equal(e.msg, "preload nonsense: ModuleNotFoundError: No module named 'nonsense'");
    host_stop(&h);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define PYTHON(name) cmocka_unit_test_setup_teardown(name, python, no_python)
    static const struct CMUnitTest tests[] = {
        CASE(a_member_joins_and_answers_over_its_own_descriptors),
        CASE(many_members_of_one_zygote_live_in_one_sandbox_and_in_several),
        CASE(members_end_with_their_sandbox),
        CASE(what_a_zygote_could_not_load_is_told_in_its_words),
        CASE(requests_that_make_no_sense_are_refused),
        CASE(a_zygote_that_lies_is_ended_and_the_next_one_works),
        CASE(a_new_generation_takes_over_and_members_of_the_old_one_live_on),
        PYTHON(a_python_member_runs_cells_and_prints_where_it_should),
        PYTHON(siblings_of_one_zygote_do_not_draw_the_same_numbers),
        PYTHON(a_module_that_cannot_be_imported_is_named),
    };

    if (geteuid() != 0) {
        puts("1..0 # SKIP needs root");
        return 0;
    }
    return cmocka_run_group_tests_name("zygotes", tests, NULL, NULL);
}
