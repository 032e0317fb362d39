#include "tests/unit/test.h"

#include "all_messages.h"
#include "core/wire/rt.h"

static uint8_t bytes[FRAME_PAYLOAD_MAX];
static struct err err;

TEST(every_field_of_every_message_survives_encoding_and_decoding)
{
    check_every_field_survives(MESSAGE_RT);
}

TEST(every_truncation_and_every_trailing_byte_is_refused)
{
    check_truncations_and_trailing_bytes(MESSAGE_RT);
}

TEST(the_layout_on_the_wire_does_not_change)
{
    static const uint8_t hello[] = { 1, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0 };
    static const uint8_t sig[] = { 15, 0, 0, 0, 1 };
    static const uint8_t exec[] = { 2, 0, 0, 0, 24,  0,   80, 0, 1, 0, 0, 0, '/', 1, 0,   0,   0,
                                    2, 0, 0, 0, 'l', 's', 1,  0, 0, 0, 3, 0, 0,   0, 'A', '=', 'b' };
    const char *const argv[] = { "ls", NULL }, *const env[] = { "A=b", NULL };

    assert_int_equal(rt_hello_encode(&(struct rt_hello){ 1, 2, 3 }, bytes, &err), sizeof(hello));
    assert_memory_equal(bytes, hello, sizeof(hello));
    assert_int_equal(rt_signal_encode(&(struct rt_signal){ 15, RT_SCOPE_GROUP }, bytes, &err), sizeof(sig));
    assert_memory_equal(bytes, sig, sizeof(sig));
    assert_int_equal(rt_exec_encode(&(struct rt_exec){ 2, 24, 80, "/", argv, env }, bytes, &err), sizeof(exec));
    assert_memory_equal(bytes, exec, sizeof(exec));
}

static void refused_exec(const uint8_t *data, size_t len, const char *why)
{
    struct frame f = { .type = FRAME_EXEC, .len = (uint32_t)len, .data = data };
    struct rt_exec m = { .flags = 77 };
    void *strings = &m;

    if (rt_exec_decode(&f, &m, &strings, &err) != -1 || err.id != ERR_PROTOCOL)
        fail_msg("accepted: %s", why);
    assert_int_equal(m.flags, 77); /* results are written only on success */
    assert_ptr_equal(strings, &m);
}

TEST(unknown_flags_are_refused)
{
    const char *const argv[] = { "ls", NULL };

    assert_true(rt_exec_encode(&(struct rt_exec){ RT_EXEC_KERNEL, 0, 0, "/", argv, NULL }, bytes, &err) > 0);
    assert_int_equal(rt_exec_encode(&(struct rt_exec){ 8, 0, 0, "/", argv, NULL }, bytes, &err), -1);
    assert_int_equal(
        rt_exec_encode(&(struct rt_exec){ RT_EXEC_KERNEL | RT_EXEC_TTY, 1, 1, "/", argv, NULL }, bytes, &err), -1);
}

TEST(a_fork_names_its_source_stream_and_excludes_other_flags)
{
    static const uint32_t wrong[] = { RT_EXEC_FORKED, RT_EXEC_FORKED | RT_EXEC_KERNEL | RT_EXEC_JOINED,
                                      RT_EXEC_FORKED | RT_EXEC_KERNEL | RT_EXEC_STDIN,
                                      RT_EXEC_FORKED | RT_EXEC_KERNEL | RT_EXEC_TTY };
    const char *const argv[] = { "python", NULL };
    struct rt_exec m = { .flags = RT_EXEC_FORKED | RT_EXEC_KERNEL, .cwd = "", .argv = argv, .forked_stream = 6 },
                   got = { 0 };
    auto_free void *strings = NULL;

    int n = rt_exec_encode(&m, bytes, &err);
    assert_true(n > 0);
    struct frame f = { .type = FRAME_EXEC, .len = (uint32_t)n, .data = bytes };
    assert_int_equal(rt_exec_decode(&f, &got, &strings, &err), 0);
    assert_int_equal(got.forked_stream, 6);
    assert_string_equal(got.argv[0], "python");
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        m.flags = wrong[i];
        assert_int_equal(rt_exec_encode(&m, bytes, &err), -1);
    }
}

TEST(hostile_string_lists_are_refused)
{
#define HEAD 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 /* flags, rows, cols, "" */
    static const uint8_t none[] = { HEAD, 0, 0, 0, 0, 0, 0, 0, 0 };
    static const uint8_t nul[] = { HEAD, 1, 0, 0, 0, 2, 0, 0, 0, 'a', 0, 0, 0, 0, 0 };
    static const uint8_t huge_count[] = { HEAD, 255, 255, 255, 255, 1, 0, 0, 0, 'a', 0, 0, 0, 0 };
    static const uint8_t huge_length[] = { HEAD, 1, 0, 0, 0, 255, 255, 255, 255, 'a', 0, 0, 0, 0 };
    static const uint8_t cwd_nul[] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 'a', 0, 0, 0, 0 };

    refused_exec(none, sizeof(none), "no argument at all");
    refused_exec(nul, sizeof(nul), "a NUL in an argument");
    refused_exec(huge_count, sizeof(huge_count), "four billion arguments");
    refused_exec(huge_length, sizeof(huge_length), "an argument of four billion bytes");
    refused_exec(cwd_nul, sizeof(cwd_nul), "a NUL in the directory");
}

/* A list of n empty strings, then NULL. */
static const char *const *empties(size_t n)
{
    static const char *list[RT_ARGS_MAX + 2];

    for (size_t i = 0; i < ARRAY_LEN(list); i++)
        list[i] = i < n ? "" : NULL;
    return list;
}

TEST(arguments_and_environment_share_one_maximum)
{
    static const char *const one[] = { "A=b", NULL };
    struct rt_exec m = { .cwd = "", .argv = empties(RT_ARGS_MAX - 1), .env = one }, back;
    void *strings;

    int n = rt_exec_encode(&m, bytes, &err);
    assert_true(n > 0);
    struct frame f = { .type = FRAME_EXEC, .len = (uint32_t)n, .data = bytes };
    assert_int_equal(rt_exec_decode(&f, &back, &strings, &err), 0);
    assert_string_equal(back.argv[RT_ARGS_MAX - 2], "");
    assert_null(back.argv[RT_ARGS_MAX - 1]);
    assert_string_equal(back.env[0], "A=b");
    assert_null(back.env[1]);
    free(strings);

    m.argv = empties(RT_ARGS_MAX);
    assert_int_equal(rt_exec_encode(&m, bytes, &err), -1);
    assert_int_equal(err.id, ERR_LIMIT);

    /* The same, forged: one more string than allowed, well within the payload. */
    struct pack p;
    pack_init(&p, bytes, sizeof(bytes));
    pack_u64(&p, 0);
    pack_str(&p, "");
    pack_u32(&p, RT_ARGS_MAX + 1);
    for (size_t i = 0; i < RT_ARGS_MAX + 1; i++)
        pack_str(&p, "");
    pack_u32(&p, 0);
    assert_false(p.bad);
    refused_exec(bytes, p.len, "more strings than RT_ARGS_MAX");
}

TEST(the_longest_strings_fit_and_one_byte_more_does_not)
{
    static char cwd[RT_PATH_MAX + 1], arg[FRAME_PAYLOAD_MAX];
    const char *const argv[] = { arg, NULL };
    struct rt_exec m = { .cwd = cwd, .argv = argv }, back;
    size_t room = FRAME_PAYLOAD_MAX - 8 - (4 + RT_PATH_MAX - 1) - 4 - 4 - 4;
    void *strings;

    memset(cwd, 'c', RT_PATH_MAX - 1);
    memset(arg, 'a', room);
    assert_int_equal(rt_exec_encode(&m, bytes, &err), FRAME_PAYLOAD_MAX);
    struct frame f = { .type = FRAME_EXEC, .len = FRAME_PAYLOAD_MAX, .data = bytes };
    assert_int_equal(rt_exec_decode(&f, &back, &strings, &err), 0);
    assert_int_equal(strlen(back.cwd), RT_PATH_MAX - 1);
    assert_int_equal(strlen(back.argv[0]), room);
    free(strings);

    arg[room] = 'a';
    assert_int_equal(rt_exec_encode(&m, bytes, &err), -1);
    assert_int_equal(err.id, ERR_LIMIT);
    arg[room] = '\0';
    cwd[RT_PATH_MAX - 1] = 'c';
    assert_int_equal(rt_exec_encode(&m, bytes, &err), -1);
    assert_int_equal(err.id, ERR_LIMIT);
}

TEST(a_path_that_does_not_fit_its_field_is_refused)
{
    struct frame f = { .type = FRAME_STAT, .data = bytes };
    static char path[RT_PATH_MAX];
    static struct rt_path m;
    struct pack p;

    for (size_t len = RT_PATH_MAX - 1; len <= RT_PATH_MAX; len++) {
        memset(path, 'p', sizeof(path));
        pack_init(&p, bytes, sizeof(bytes));
        pack_bytes(&p, path, len);
        pack_u64(&p, 0);
        pack_u64(&p, 0);
        pack_u64(&p, 0);
        f.len = (uint32_t)p.len;
        assert_int_equal(rt_path_decode(&f, &m, &err), len < RT_PATH_MAX ? 0 : -1);
    }
    memset(m.path, 'p', sizeof(m.path)); /* a path without NUL is not read past its end */
    assert_int_equal(rt_path_encode(&m, bytes, &err), -1);
    assert_int_equal(err.id, ERR_LIMIT);
}

/* Both sides refuse values that the header does not allow. */
#define REFUSED(m, ...)                                                      \
    do {                                                                     \
        struct m value_ = { __VA_ARGS__ };                                   \
                                                                             \
        err.id = ERR_NONE;                                                   \
        if (m##_encode(&value_, bytes, &err) != -1 || err.id != ERR_INVALID) \
            fail_msg("encoded: " #m " " #__VA_ARGS__);                       \
    } while (0)

TEST(encoders_refuse_values_out_of_range)
{
    REFUSED(rt_signal, .signo = 0);
    REFUSED(rt_signal, .signo = 65);
    REFUSED(rt_signal, .signo = 9, .scope = 3);
    REFUSED(rt_exit, .code = 256);
    REFUSED(rt_exit, .code = -2);
    REFUSED(rt_exit, .code = -1, .signal = 0);
    REFUSED(rt_exit, .code = 0, .signal = 9);
    REFUSED(rt_error, .id = ERR_NONE);
    REFUSED(rt_error, .id = ERR_COUNT);
    REFUSED(rt_done, .truncated = 2);
    REFUSED(rt_reset, .altered = 2);
    REFUSED(rt_path, .mode = 010000);
    REFUSED(rt_claim, .id = "sb../../../../../../et");
    REFUSED(rt_claim, .id = "sbabcdefghijklmnopqrst", .rules = { { 6, "/" } }, .nrules = 1);
}

TEST(decoders_refuse_values_out_of_range)
{
    static const struct {
        const char *message;
        size_t at; /* in the encoded example */
        uint8_t value;
    } forgeries[] = {
        { "rt_signal", 0, 65 },  { "rt_signal", 4, 3 },  { "rt_exit", 0, 5 },    { "rt_exit", 4, 65 },
        { "rt_exit", 4, 0 },     { "rt_error", 0, 0 },   { "rt_error", 1, 1 },   { "rt_done", 48, 2 },
        { "rt_path", 34, 0x10 }, { "rt_claim", 4, 'x' }, { "rt_claim", 6, '/' }, { "rt_claim", 66, 65 },
        { "rt_claim", 70, 0 },   { "rt_claim", 70, 6 },  { "rt_entry", 0, 'x' }, { "rt_entry", 0, 0 },
        { "rt_entry", 2, 0x10 }, { "rt_entry", 29, 2 },  { "rt_entry", 34, 0 },  { "rt_change", 0, 'X' },
        { "rt_change", 1, 'X' }, { "rt_error", 12, 0 },  { "rt_reset", 20, 2 },
    };
    static uint8_t out[FRAME_PAYLOAD_MAX];

    for (size_t i = 0; i < ARRAY_LEN(forgeries); i++) {
        const struct message *m = messages;

        while (strcmp(m->name, forgeries[i].message) != 0)
            m++;
        int n = m->example(bytes, &err);
        assert_true(n > (int)forgeries[i].at);
        bytes[forgeries[i].at] = forgeries[i].value;
        if (decode_again(m, bytes, (size_t)n, out, &err) != -1)
            fail_msg("forgery %zu, of %s, is accepted", i, m->name);
    }
}

TEST(an_item_that_does_not_fit_is_not_written_partially)
{
    struct rt_entry e = { .kind = 'f', .name = "name" };
    struct pack p;
    size_t whole;

    pack_init(&p, bytes, sizeof(bytes));
    rt_entry_pack(&p, &e);
    whole = p.len;
    pack_init(&p, bytes, whole + whole - 1);
    rt_entry_pack(&p, &e);
    assert_false(p.bad);
    rt_entry_pack(&p, &e);
    assert_true(p.bad);
    assert_int_equal(p.len, whole);
}

TEST(only_files_and_archives_have_large_windows)
{
    assert_int_equal(rt_initial_window(FRAME_EXEC), WIRE_WINDOW);
    assert_int_equal(rt_initial_window(FRAME_LIST), WIRE_WINDOW);
    assert_int_equal(rt_initial_window(FRAME_READ), WIRE_WINDOW_BULK);
    assert_int_equal(rt_initial_window(FRAME_WRITE), WIRE_WINDOW_BULK);
    assert_int_equal(rt_initial_window(FRAME_TAR_IN), WIRE_WINDOW_BULK);
    assert_int_equal(rt_initial_window(FRAME_TAR_OUT), WIRE_WINDOW_BULK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(every_field_of_every_message_survives_encoding_and_decoding),
        RUN(every_truncation_and_every_trailing_byte_is_refused),
        RUN(the_layout_on_the_wire_does_not_change),
        RUN(unknown_flags_are_refused),
        RUN(a_fork_names_its_source_stream_and_excludes_other_flags),
        RUN(hostile_string_lists_are_refused),
        RUN(arguments_and_environment_share_one_maximum),
        RUN(the_longest_strings_fit_and_one_byte_more_does_not),
        RUN(a_path_that_does_not_fit_its_field_is_refused),
        RUN(encoders_refuse_values_out_of_range),
        RUN(decoders_refuse_values_out_of_range),
        RUN(an_item_that_does_not_fit_is_not_written_partially),
        RUN(only_files_and_archives_have_large_windows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
