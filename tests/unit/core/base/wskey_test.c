#include "tests/unit/test.h"

#include "core/base/wskey.h"

TEST(the_proof_is_the_one_of_the_standard)
{
    char proof[WSKEY_ACCEPT];

    wskey_accept("dGhlIHNhbXBsZSBub25jZQ==", proof); /* RFC 6455, 1.3 */
    assert_string_equal(proof, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    wskey_accept("x3JJHMbDL1EzLkh9GBhXDw==", proof);
    assert_string_equal(proof, "HSmrc0sMlYUkAGmm5OPpG2HaGWk=");
}

TEST(a_key_is_sixteen_bytes_in_base64_and_nothing_else)
{
    static const char *const bad[] = {
        "",
        "dGhlIHNhbXBsZSBub25jZQ=",
        "dGhlIHNhbXBsZSBub25jZQ",
        "dGhlIHNhbXBsZSBub25jZQ===",
        "dGhlIHNhbXBsZSBub25jZQ==x",
        "dGhlIHNhbXBsZSBub25jZR==", /* bits that no byte has */
        "dGhl HNhbXBsZSBub25jZQ==",
        "dGhlIHNhbXBsZSBub25jZQAA",
        "========================",
    };

    assert_true(wskey_valid("dGhlIHNhbXBsZSBub25jZQ=="));
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (wskey_valid(bad[i]))
            fail_msg("'%s' was taken", bad[i]);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        RUN(the_proof_is_the_one_of_the_standard),
        RUN(a_key_is_sixteen_bytes_in_base64_and_nothing_else),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
