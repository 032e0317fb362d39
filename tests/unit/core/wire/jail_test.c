#include "tests/unit/test.h"

#include "all_messages.h"
#include "core/wire/egress.h"
#include "core/wire/jail.h"

#define ID "sbabcdefghijklmnopqrst"

static uint8_t bytes[FRAME_PAYLOAD_MAX];
static struct err err;

TEST(every_field_of_every_message_survives_encoding_and_decoding)
{
    check_every_field_survives(MESSAGE_JAIL);
}

TEST(every_truncation_and_every_trailing_byte_is_refused)
{
    check_truncations_and_trailing_bytes(MESSAGE_JAIL);
}

TEST(only_sandbox_ids_are_accepted)
{
    static const char *const bad[] = {
        "",
        "sb",
        "..",
        "exabcdefghijklmnopqrst",
        "sbabcdefghijklmnopqrs",
        "sbabcdefghijklmnopqrs/",
        "sbABCDEFGHIJKLMNOPQRST",
        "sb../../../../../../e",
        "sb0123456789abcdefghij",
    };
    struct jail_id m = { ID };
    struct pack p;

    assert_true(jail_id_encode(&m, bytes, &err) > 0);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct frame f = { .type = FRAME_J_KILL, .data = bytes };

        strcpy(m.id, bad[i]);
        assert_int_equal(jail_id_encode(&m, bytes, &err), -1);
        assert_int_equal(err.id, ERR_INVALID);
        pack_init(&p, bytes, sizeof(bytes));
        pack_str(&p, bad[i]);
        f.len = (uint32_t)p.len;
        if (jail_id_decode(&f, &m, &err) != -1)
            fail_msg("'%s' is accepted", bad[i]);
    }
}

TEST(the_maximum_counts_fit_in_a_frame_and_greater_ones_are_refused)
{
    static struct jail_create create = { .id = ID, .nlimits = JAIL_LIMITS_MAX, .nmounts = JAIL_MOUNTS_MAX };
    static struct jail_create create_back;
    static struct jail_list list = { .n = JAIL_LIST_MAX }, list_back;
    struct frame f = { .type = FRAME_J_CREATE, .data = bytes };

    for (size_t i = 0; i < JAIL_MOUNTS_MAX; i++) {
        create.mounts[i].kind = JAIL_BIND_RO;
        memset(create.mounts[i].dst, 'd', JAIL_DST_MAX - 1);
    }
    f.len = (uint32_t)jail_create_encode(&create, bytes, &err);
    assert_int_equal(jail_create_decode(&f, &create_back, &err), 0);
    assert_memory_equal(&create, &create_back, sizeof(create));
    create.nmounts++;
    assert_int_equal(jail_create_encode(&create, bytes, &err), -1);
    assert_int_equal(err.id, ERR_LIMIT);
    create.nmounts = 0;
    create.nlimits++;
    assert_int_equal(jail_create_encode(&create, bytes, &err), -1);
    assert_int_equal(err.id, ERR_LIMIT);

    for (size_t i = 0; i < JAIL_LIST_MAX; i++)
        strcpy(list.ids[i], ID);
    f.type = FRAME_DONE;
    f.len = (uint32_t)jail_list_encode(&list, bytes, &err);
    assert_int_equal(jail_list_decode(&f, &list_back, &err), 0);
    assert_memory_equal(&list, &list_back, sizeof(list));
    list.n++;
    assert_int_equal(jail_list_encode(&list, bytes, &err), -1);
}

TEST(counts_beyond_their_arrays_are_refused)
{
    /* The offset of the count in the example, and a count that is one too large, with enough bytes
     * to read. */
    static const struct {
        const char *message;
        size_t at;
        uint32_t count;
    } forgeries[] = {
        { "jail_create", 52, JAIL_LIMITS_MAX + 1 },
        { "jail_create", 81, JAIL_MOUNTS_MAX + 1 },
        { "jail_created", 26, JAIL_LIMITS_MAX + 1 },
        { "jail_list", 0, JAIL_LIST_MAX + 1 },
        { "jail_list", 0, UINT32_MAX },
    };
    static uint8_t out[FRAME_PAYLOAD_MAX];

    for (size_t i = 0; i < ARRAY_LEN(forgeries); i++) {
        const struct message *m = messages;
        struct pack p;

        while (strcmp(m->name, forgeries[i].message) != 0)
            m++;
        assert_true(m->example(bytes, &err) > (int)forgeries[i].at);
        pack_init(&p, bytes + forgeries[i].at, 4);
        assert_true(bytes[forgeries[i].at] == 2 || bytes[forgeries[i].at] == 3); /* this is the count */
        pack_u32(&p, forgeries[i].count);
        assert_int_equal(decode_again(m, bytes, sizeof(bytes), out, &err), -1);
        if (!strstr(err.msg, "invalid "))
            fail_msg("forgery %zu was not refused for its count: %s", i, err.msg);
    }
}

TEST(unknown_kinds_are_refused)
{
    struct jail_create create = { .id = ID, .mounts = { { .kind = 4 } }, .nmounts = 1 };
    struct jail_created created = { .enforced = { JAIL_ENFORCED + 1 }, .nlimits = 1 };
    struct jail_created carrier = { .egress_carrier = EGRESS_CARRIER_TPROXY + 1 };
    struct jail_create network = { .id = ID, .network = 2 };
    struct jail_template egress = { .egress = 2 };
    struct jail_event event = { .id = ID, .kind = 3 };

    assert_int_equal(jail_create_encode(&create, bytes, &err), -1);
    create.mounts[0].kind = 0;
    assert_int_equal(jail_create_encode(&create, bytes, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    assert_int_equal(jail_created_encode(&created, bytes, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    assert_int_equal(jail_event_encode(&event, bytes, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    assert_int_equal(jail_created_encode(&carrier, bytes, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    assert_int_equal(jail_create_encode(&network, bytes, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    assert_int_equal(jail_template_encode(&egress, bytes, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    struct jail_denial_notice news = { .id = ID, .watched = JAIL_UNWATCHED };
    assert_int_equal(jail_denial_notice_encode(&news, bytes, &err), -1);
    struct jail_denied denied = { .watched = JAIL_UNWATCHABLE + 1 };
    assert_int_equal(jail_denied_encode(&denied, bytes, &err), -1);
    denied = (struct jail_denied){ .n = JAIL_DENIALS_MAX + 1 };
    assert_int_equal(jail_denied_encode(&denied, bytes, &err), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(every_field_of_every_message_survives_encoding_and_decoding),
        RUN(every_truncation_and_every_trailing_byte_is_refused),
        RUN(only_sandbox_ids_are_accepted),
        RUN(the_maximum_counts_fit_in_a_frame_and_greater_ones_are_refused),
        RUN(counts_beyond_their_arrays_are_refused),
        RUN(unknown_kinds_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
