/* Delegated tokens as text, and tickets, which exist only in memory. */
#include "tests/unit/test.h"

#include "server/auth/delegated_token.h"
#include "server/auth/tickets.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <stdio.h>

static const uint8_t pepper[MAC_LEN] = { 1, 2, 3 };

static struct mac_key sealed_with(const char *salt)
{
    struct mac_key s;

    mac_key_init(&s, pepper, salt);
    return s;
}

static struct delegated_token some_pass(enum delegator_kind by)
{
    struct delegated_token g = { .delegator = by,
                                 .owner = "acme",
                                 .scopes = scope_expand(SCOPE_BIT(FILES) | SCOPE_BIT(EXECUTIONS)),
                                 .port = 8080,
                                 .expires_ms = 1700000000123 };

    id_new("tk", g.id);
    id_new("sb", g.sandbox);
    if (by == DELEGATOR_USER)
        id_new("us", g.user), strcpy(g.name, "ada@example.org");
    for (size_t i = 0; by == DELEGATOR_KEY && i < STORE_HASH_LEN; i++)
        g.key_hash[i] = (uint8_t)(i * 7);
    return g;
}

TEST(a_token_is_read_back_as_it_was_written)
{
    struct mac_key s = sealed_with("salt");

    for (enum delegator_kind by = DELEGATOR_LOCAL; by <= DELEGATOR_USER; by++) {
        struct delegated_token g = some_pass(by), back;
        auto_buf text = { 0 };

        delegated_token_write(&s, DELEGATED_SANDBOX_TOKEN, NULL, &g, &text);
        assert_true(str_starts(text.data, DELEGATED_TOKEN_PREFIX));
        assert_true(text.len < DELEGATED_TOKEN_TEXT_MAX);
        assert_true(delegated_token_read(&s, DELEGATED_SANDBOX_TOKEN, NULL, text.data, &back));
        assert_int_equal(back.delegator, by);
        assert_string_equal(back.id, g.id);
        assert_string_equal(back.owner, "acme");
        assert_string_equal(back.sandbox, g.sandbox);
        assert_string_equal(back.user, g.user);
        assert_string_equal(back.name, g.name);
        assert_memory_equal(back.key_hash, g.key_hash, sizeof(g.key_hash));
        assert_int_equal(back.scopes, g.scopes);
        assert_int_equal(back.port, 8080);
        assert_int_equal(back.expires_ms, g.expires_ms);
    }
}

TEST(AU06_a_token_with_any_byte_changed_or_removed_is_refused)
{
    struct mac_key s = sealed_with("salt");
    struct delegated_token g = some_pass(DELEGATOR_KEY), back;
    auto_buf text = { 0 };

    delegated_token_write(&s, DELEGATED_SANDBOX_TOKEN, NULL, &g, &text);
    for (size_t i = 0; i < text.len; i++) {
        auto_free char *changed = str_dup(text.data), *cut = str_dup_n(text.data, i);

        for (const char *c = "Aa9-_.=/"; *c; c++) {
            changed[i] = *c;
            if (*c != text.data[i] && delegated_token_read(&s, DELEGATED_SANDBOX_TOKEN, NULL, changed, &back))
                fail_msg("byte %zu can be changed to '%c'", i, *c);
        }
        assert_false(delegated_token_read(&s, DELEGATED_SANDBOX_TOKEN, NULL, cut, &back));
    }
    auto_free char *more = str_printf("%sA", text.data);
    assert_false(delegated_token_read(&s, DELEGATED_SANDBOX_TOKEN, NULL, more, &back));
}

TEST(a_mac_is_valid_for_one_server_salt_kind_and_binding)
{
    struct mac_key s = sealed_with("salt"), later = sealed_with("another"), elsewhere;
    static const uint8_t other[MAC_LEN] = { 9 };
    struct delegated_token g = some_pass(DELEGATOR_KEY), back;
    auto_buf token = { 0 }, url = { 0 };
    auto_free char *bound = delegated_token_url_binding("GET", "/workspace/a b"),
                   *put = delegated_token_url_binding("PUT", "/workspace/a b"),
                   *below = delegated_token_url_binding("GET", "/workspace/a");

    mac_key_init(&elsewhere, other, "salt");
    delegated_token_write(&s, DELEGATED_SANDBOX_TOKEN, NULL, &g, &token);
    delegated_token_write(&s, DELEGATED_FILE_URL, bound, &g, &url);
    assert_false(delegated_token_read(&later, DELEGATED_SANDBOX_TOKEN, NULL, token.data, &back));
    assert_false(delegated_token_read(&elsewhere, DELEGATED_SANDBOX_TOKEN, NULL, token.data, &back));
    assert_false(
        delegated_token_read(&s, DELEGATED_FILE_URL, NULL, token.data + strlen(DELEGATED_TOKEN_PREFIX), &back));
    assert_true(delegated_token_read(&s, DELEGATED_FILE_URL, bound, url.data, &back));
    assert_false(delegated_token_read(&s, DELEGATED_FILE_URL, put, url.data, &back));
    assert_false(delegated_token_read(&s, DELEGATED_FILE_URL, below, url.data, &back));
    assert_false(delegated_token_read(&s, DELEGATED_FILE_URL, NULL, url.data, &back));
    auto_free char *as_token = str_printf("%s%s", DELEGATED_TOKEN_PREFIX, url.data);
    assert_false(delegated_token_read(&s, DELEGATED_SANDBOX_TOKEN, NULL, as_token, &back));
}

TEST(content_that_the_server_would_not_write_is_not_read)
{
    struct mac_key s = sealed_with("salt");
    struct delegated_token g = some_pass(DELEGATOR_KEY), back;
    auto_buf text = { 0 };

    g.scopes = SCOPE_ALL;
    delegated_token_write(&s, DELEGATED_SANDBOX_TOKEN, NULL, &g, &text);
    assert_false(delegated_token_read(&s, DELEGATED_SANDBOX_TOKEN, NULL, text.data, &back));
}

/* --- tickets --- */

#define PATH "/v1/sandboxes/sb1/files"

TEST(WB09_a_ticket_is_valid_once_for_its_method_and_path_for_a_minute)
{
    static const struct {
        const char *method, *path;
        uint64_t after_ns;
        bool good;
    } rows[] = {
        { "GET", PATH, 0, true },
        { "GET", PATH, TICKET_NS - 1, true },
        { "GET", PATH, TICKET_NS, false },
        { "PUT", PATH, 0, false },
        { "GET", PATH "/stat", 0, true },
        { "GET", PATH "x", 0, false },
        { "GET", "/v1/sandboxes/sb1", 0, false },
        { "GET", "/v1/sandboxes/sb2/files", 0, false },
    };
    auto_(tickets) t = tickets_new();
    struct delegated_token g = some_pass(DELEGATOR_KEY), back;
    struct err err = { 0 };
    char text[TICKET_SIZE];

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        assert_int_equal(tickets_make(t, &g, "GET", PATH, 1000, text, &err), 0);
        if (tickets_take(t, text, rows[i].method, rows[i].path, 1000 + rows[i].after_ns, &back) != rows[i].good)
            fail_msg("row %zu", i);
        if (rows[i].good)
            assert_string_equal(back.id, g.id);
        if (tickets_take(t, text, "GET", PATH, 1000, &back))
            fail_msg("row %zu: twice", i);
    }
}

TEST(an_unknown_ticket_is_refused)
{
    auto_(tickets) t = tickets_new();
    struct delegated_token g = some_pass(DELEGATOR_KEY), back;
    struct err err = { 0 };
    char text[TICKET_SIZE];

    assert_int_equal(tickets_make(t, &g, "GET", PATH, 1000, text, &err), 0);
    assert_int_equal(strlen(text), TICKET_SIZE - 1);
    assert_false(tickets_take(t, "", "GET", PATH, 1000, &back));
    assert_false(tickets_take(t, "tkt_", "GET", PATH, 1000, &back));
    assert_false(tickets_take(t, "tkt_0000000000000000000000000000000000000000", "GET", PATH, 1000, &back));
    assert_true(tickets_take(t, text, "GET", PATH, 1000, &back));
}

TEST(tickets_are_limited_per_tenant_and_expired_ones_are_dropped)
{
    auto_(tickets) t = tickets_new();
    struct delegated_token g = some_pass(DELEGATOR_LOCAL), other = g, back;
    struct err err = { 0 };
    char text[TICKET_SIZE], last[TICKET_SIZE];

    strcpy(other.owner, "other");
    for (unsigned i = 0; i < TICKETS_MAX_OWNER; i++)
        assert_int_equal(tickets_make(t, &g, "GET", PATH, 1000, text, &err), 0);
    assert_int_equal(tickets_make(t, &g, "GET", PATH, 1000, text, &err), -1);
    assert_int_equal(err.id, ERR_LIMIT);
    assert_int_equal(tickets_make(t, &other, "GET", PATH, 1000, last, &err), 0);
    assert_true(tickets_take(t, last, "GET", PATH, 1000, &back));
    assert_int_equal(tickets_make(t, &g, "GET", PATH, 1000 + TICKET_NS, last, &err), 0);
    assert_true(tickets_take(t, last, "GET", PATH, 1000 + TICKET_NS, &back));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_token_is_read_back_as_it_was_written),
        RUN(AU06_a_token_with_any_byte_changed_or_removed_is_refused),
        RUN(a_mac_is_valid_for_one_server_salt_kind_and_binding),
        RUN(content_that_the_server_would_not_write_is_not_read),
        RUN(WB09_a_ticket_is_valid_once_for_its_method_and_path_for_a_minute),
        RUN(an_unknown_ticket_is_refused),
        RUN(tickets_are_limited_per_tenant_and_expired_ones_are_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
