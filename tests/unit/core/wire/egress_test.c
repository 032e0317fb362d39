#include "tests/unit/test.h"

#include "all_messages.h"
#include "core/wire/egress.h"

#define ID "sbabcdefghijklmnopqrst"

static uint8_t bytes[FRAME_PAYLOAD_MAX];
static struct err err;

TEST(every_field_of_every_message_survives_encoding_and_decoding)
{
    check_every_field_survives(MESSAGE_EGRESS);
}

TEST(every_truncation_and_every_trailing_byte_is_refused)
{
    check_truncations_and_trailing_bytes(MESSAGE_EGRESS);
}

/* Encodes without the checks of the encoder, as a hostile sender would. */
static int decode_listen(const char *id, uint8_t carrier)
{
    struct frame f = { .type = FRAME_E_LISTEN, .data = bytes };
    struct egress_listen m;
    struct pack p;

    pack_init(&p, bytes, sizeof(bytes));
    pack_str(&p, id);
    pack_u8(&p, carrier);
    f.len = (uint32_t)p.len;
    return egress_listen_decode(&f, &m, &err);
}

TEST(listeners_need_the_id_of_a_sandbox_and_a_carrier)
{
    assert_int_equal(decode_listen(ID, EGRESS_CARRIER_PROXY), 0);
    assert_int_equal(decode_listen(ID, EGRESS_CARRIER_TPROXY), 0);
    assert_int_equal(decode_listen(ID, EGRESS_CARRIER_NONE), -1);
    assert_int_equal(decode_listen(ID, EGRESS_CARRIER_TPROXY + 1), -1);
    assert_int_equal(decode_listen("", EGRESS_CARRIER_PROXY), -1);
    assert_int_equal(decode_listen("exabcdefghijklmnopqrst", EGRESS_CARRIER_PROXY), -1);
    assert_int_equal(decode_listen("sb../../../../../../e", EGRESS_CARRIER_PROXY), -1);
    assert_int_equal(err.id, ERR_PROTOCOL);
}

/* Returns the id of the error, or ERR_NONE. */
static enum err_id encode_bind(const char *rules, const char *const *secrets)
{
    struct egress_bind m = { .id = ID, .rules = rules, .secrets = secrets };

    err = (struct err){ 0 };
    return egress_bind_encode(&m, bytes, &err) < 0 ? err.id : ERR_NONE;
}

TEST(secrets_come_in_pairs_within_their_bounds)
{
    static char name[EGRESS_SECRET_NAME_MAX + 1], value[EGRESS_SECRET_VALUE_MAX + 2];
    const char *one[] = { name, value, NULL };
    const char *many[2 * EGRESS_SECRETS_MAX + 3] = { 0 };

    memset(name, 'n', EGRESS_SECRET_NAME_MAX - 1);
    memset(value, 'v', EGRESS_SECRET_VALUE_MAX);
    assert_int_equal(encode_bind("", one), ERR_NONE);
    value[EGRESS_SECRET_VALUE_MAX] = 'v';
    assert_int_equal(encode_bind("", one), ERR_INVALID);
    value[EGRESS_SECRET_VALUE_MAX] = '\0';
    name[EGRESS_SECRET_NAME_MAX - 1] = 'n';
    assert_int_equal(encode_bind("", one), ERR_INVALID);
    name[EGRESS_SECRET_NAME_MAX - 1] = '\0';
    one[1] = NULL; /* a name without a value */
    assert_int_equal(encode_bind("", one), ERR_INVALID);
    assert_int_equal(encode_bind("", NULL), ERR_NONE);
    for (size_t i = 0; i < 2 * EGRESS_SECRETS_MAX; i++)
        many[i] = i % 2 ? value : name;
    assert_int_equal(encode_bind("", many), ERR_NONE);
    many[2 * EGRESS_SECRETS_MAX] = name;
    many[2 * EGRESS_SECRETS_MAX + 1] = value;
    assert_int_equal(encode_bind("", many), ERR_LIMIT);
}

/* A decoder that accepted an odd list would read a value past its end. */
TEST(an_odd_list_of_secrets_is_refused_on_arrival)
{
    struct frame f = { .type = FRAME_E_BIND, .data = bytes };
    struct egress_bind m;
    void *strings = NULL;
    struct pack p;

    pack_init(&p, bytes, sizeof(bytes));
    pack_str(&p, ID);
    pack_str(&p, "");
    pack_u32(&p, 0);
    pack_u32(&p, 0);
    pack_u64(&p, 0);
    pack_str(&p, "allow pypi.org\n");
    pack_u32(&p, 1);
    pack_str(&p, "openai");
    f.len = (uint32_t)p.len;
    assert_int_equal(egress_bind_decode(&f, &m, &strings, &err), -1);
    assert_int_equal(err.id, ERR_PROTOCOL);
    assert_null(strings);
}

TEST(the_longest_rules_and_secrets_fit_in_one_frame)
{
    static char rules[EGRESS_RULES_TEXT_MAX + 2], value[EGRESS_SECRET_VALUE_MAX + 1];
    const char *secrets[2 * EGRESS_SECRETS_MAX + 1] = { 0 };
    struct frame f = { .type = FRAME_E_BIND, .data = bytes };
    struct egress_bind m = { .id = ID, .rules = rules, .secrets = secrets }, back;
    auto_free void *strings = NULL;

    memset(rules, 'r', EGRESS_RULES_TEXT_MAX);
    memset(value, 'v', EGRESS_SECRET_VALUE_MAX);
    for (size_t i = 0; i < 2 * EGRESS_SECRETS_MAX; i++)
        secrets[i] = i % 2 ? value : "name";
    int len = egress_bind_encode(&m, bytes, &err);
    assert_true(len > 0);
    f.len = (uint32_t)len;
    assert_int_equal(egress_bind_decode(&f, &back, &strings, &err), 0);
    assert_string_equal(back.rules, rules);
    assert_string_equal(back.secrets[2 * EGRESS_SECRETS_MAX - 1], value);
    assert_null(back.secrets[2 * EGRESS_SECRETS_MAX]);
    rules[EGRESS_RULES_TEXT_MAX] = 'r';
    assert_int_equal(egress_bind_encode(&m, bytes, &err), -1);
    assert_int_equal(err.id, ERR_LIMIT);
}

TEST(the_largest_reports_fit_in_one_frame_and_larger_ones_are_refused)
{
    static struct egress_reported r = { .n = EGRESS_DESTINATIONS_MAX }, r_back;
    static struct egress_listed l = { .n = EGRESS_CONNECTIONS_MAX }, l_back;
    struct frame f = { .type = FRAME_E_REPORTED, .data = bytes };

    for (size_t i = 0; i < EGRESS_DESTINATIONS_MAX; i++) {
        memset(r.destinations[i].host, 'h', EGRESS_HOST_MAX - 1);
        memset(r.destinations[i].reason, 'r', EGRESS_REASON_MAX - 1);
    }
    f.len = (uint32_t)egress_reported_encode(&r, bytes, &err);
    assert_int_equal(egress_reported_decode(&f, &r_back, &err), 0);
    assert_memory_equal(&r, &r_back, sizeof(r));
    r.n++;
    assert_int_equal(egress_reported_encode(&r, bytes, &err), -1);
    assert_int_equal(err.id, ERR_LIMIT);

    for (size_t i = 0; i < EGRESS_CONNECTIONS_MAX; i++) {
        memset(l.connections[i].host, 'h', EGRESS_HOST_MAX - 1);
        l.connections[i].way = EGRESS_WAY_PROXY;
    }
    f.type = FRAME_E_LISTED;
    f.len = (uint32_t)egress_listed_encode(&l, bytes, &err);
    assert_int_equal(egress_listed_decode(&f, &l_back, &err), 0);
    assert_memory_equal(&l, &l_back, sizeof(l));
    l.connections[0].way = 0;
    assert_int_equal(egress_listed_encode(&l, bytes, &err), -1);
    l.connections[0].way = EGRESS_WAY_SECRET + 1;
    assert_int_equal(egress_listed_encode(&l, bytes, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(every_field_of_every_message_survives_encoding_and_decoding),
        RUN(every_truncation_and_every_trailing_byte_is_refused),
        RUN(listeners_need_the_id_of_a_sandbox_and_a_carrier),
        RUN(secrets_come_in_pairs_within_their_bounds),
        RUN(an_odd_list_of_secrets_is_refused_on_arrival),
        RUN(the_longest_rules_and_secrets_fit_in_one_frame),
        RUN(the_largest_reports_fit_in_one_frame_and_larger_ones_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
