#include "tests/unit/test.h"

#include "core/wire/frame.h"

static const uint8_t good[] = { 3, 0, 0, 0, FRAME_DATA, 0x81, 0, 0, 0x04, 0x03, 0x02, 0x01, 'a', 'b', 'c' };

TEST(header_and_parse_agree_on_every_byte)
{
    struct frame f = { .type = FRAME_DATA, .flags = 0x81, .stream = 0x01020304, .len = 3, .data = good + FRAME_HEADER };
    uint8_t header[FRAME_HEADER];
    struct frame back;
    struct err err = { 0 };

    frame_header(header, &f);
    assert_memory_equal(header, good, FRAME_HEADER);
    assert_int_equal(frame_parse(good, sizeof(good), &back, &err), 0);
    assert_int_equal(back.type, f.type);
    assert_int_equal(back.flags, f.flags);
    assert_int_equal(back.stream, f.stream);
    assert_int_equal(back.len, 3);
    assert_memory_equal(back.data, "abc", 3);
}

TEST(every_shorter_or_longer_packet_is_refused)
{
    uint8_t longer[sizeof(good) + 1] = { 0 };
    struct err err = { 0 };
    struct frame f;

    for (size_t n = 0; n < sizeof(good); n++) {
        assert_int_equal(frame_parse(good, n, &f, &err), -1);
        assert_int_equal(err.id, ERR_PROTOCOL);
    }
    memcpy(longer, good, sizeof(good));
    assert_int_equal(frame_parse(longer, sizeof(longer), &f, &err), -1);
}

TEST(a_nonzero_reserved_field_or_an_unknown_type_is_refused)
{
    static const struct {
        size_t at;
        uint8_t value;
    } changes[] = { { 6, 1 }, { 7, 1 }, { 4, 0 }, { 4, 5 }, { 4, 255 } };
    struct err err = { 0 };
    struct frame f;

    for (size_t i = 0; i < ARRAY_LEN(changes); i++) {
        uint8_t packet[sizeof(good)];

        memcpy(packet, good, sizeof(good));
        packet[changes[i].at] = changes[i].value;
        if (frame_parse(packet, sizeof(packet), &f, &err) != -1 || err.id != ERR_PROTOCOL)
            fail_msg("change %zu was accepted", i);
    }
}

TEST(the_longest_payload_is_accepted_and_one_byte_more_is_not)
{
    static uint8_t packet[FRAME_MAX + 1];
    struct err err = { 0 };
    struct frame f = { .type = FRAME_DATA, .len = FRAME_PAYLOAD_MAX };

    frame_header(packet, &f);
    assert_int_equal(frame_parse(packet, FRAME_MAX, &f, &err), 0);
    assert_int_equal(f.len, FRAME_PAYLOAD_MAX);
    packet[0] = 1; /* 65537 */
    assert_int_equal(frame_parse(packet, FRAME_MAX + 1, &f, &err), -1);
}

TEST(frame_names_match_the_table)
{
    assert_string_equal(frame_name(FRAME_EXEC), "EXEC");
    assert_string_equal(frame_name(FRAME_J_KEEP), "J_KEEP");
    assert_string_equal(frame_name(0), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(header_and_parse_agree_on_every_byte),
        RUN(every_shorter_or_longer_packet_is_refused),
        RUN(a_nonzero_reserved_field_or_an_unknown_type_is_refused),
        RUN(the_longest_payload_is_accepted_and_one_byte_more_is_not),
        RUN(frame_names_match_the_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
