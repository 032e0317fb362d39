#include "tests/unit/test.h"

#include "core/base/wskey.h"

TEST(the_accept_value_matches_the_examples_of_the_rfc)
{
    char proof[WSKEY_ACCEPT];

    wskey_accept("dGhlIHNhbXBsZSBub25jZQ==", proof); /* RFC 6455, 1.3 */
    assert_string_equal(proof, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    wskey_accept("x3JJHMbDL1EzLkh9GBhXDw==", proof);
    assert_string_equal(proof, "HSmrc0sMlYUkAGmm5OPpG2HaGWk=");
}

TEST(only_sixteen_bytes_in_base64_are_a_valid_key)
{
    static const char *const bad[] = {
        "",
        "dGhlIHNhbXBsZSBub25jZQ=",
        "dGhlIHNhbXBsZSBub25jZQ",
        "dGhlIHNhbXBsZSBub25jZQ===",
        "dGhlIHNhbXBsZSBub25jZQ==x",
        "dGhlIHNhbXBsZSBub25jZR==", /* unused non-zero bits */
        "dGhl HNhbXBsZSBub25jZQ==",
        "dGhlIHNhbXBsZSBub25jZQAA",
        "========================",
    };

    assert_true(wskey_valid("dGhlIHNhbXBsZSBub25jZQ=="));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (wskey_valid(bad[i]))
            fail_msg("'%s' was accepted", bad[i]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        RUN(the_accept_value_matches_the_examples_of_the_rfc),
        RUN(only_sixteen_bytes_in_base64_are_a_valid_key),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
