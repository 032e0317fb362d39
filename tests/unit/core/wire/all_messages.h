/* all_messages.h - the checks for every message of the wire; rt_test.c, jail_test.c and
 * egress_test.c run them on their own messages. */
#pragma once

#include "tests/support/messages.h"

/* Decodes a payload of exactly n bytes on the heap, so that the sanitizer detects reads past its
 * end. */
static int decode_again(const struct message *m, const uint8_t *data, size_t n, uint8_t *out, struct err *err)
{
    auto_free uint8_t *copy = malloc(n ? n : 1);

    assert_non_null(copy);
    memcpy(copy, data, n);
    return m->again(&(struct frame){ .type = m->types[0], .len = (uint32_t)n, .data = copy }, out, err);
}

static void check_every_field_survives(enum message_link link)
{
    for (size_t i = 0; i < nmessages; i++)
        if (messages[i].link == link && !messages[i].kept())
            fail_msg("%s is changed by encoding and decoding", messages[i].name);
}

static void check_truncations_and_trailing_bytes(enum message_link link)
{
    static uint8_t bytes[FRAME_PAYLOAD_MAX], out[FRAME_PAYLOAD_MAX];

    for (size_t i = 0; i < nmessages; i++) {
        const struct message *m = &messages[i];
        struct err err = { 0 };

        if (m->link != link)
            continue;
        int len = m->example(bytes, &err);
        assert_true(len > 0 && len < (int)sizeof(bytes));
        assert_int_equal(decode_again(m, bytes, (size_t)len, out, &err), len);
        assert_memory_equal(out, bytes, (size_t)len);
        bytes[len] = 0;
        for (int n = 0; n <= len + 1; n++) {
            int got = n == len ? -1 : decode_again(m, bytes, (size_t)n, out, &err);

            if (m->items && got == n && memcmp(out, bytes, (size_t)n) == 0)
                continue; /* truncated between two items: a shorter list is valid */
            if (got != -1)
                fail_msg("%s of %d bytes is accepted at %d", m->name, len, n);
        }
        assert_int_equal(err.id, ERR_PROTOCOL);
    }
}
