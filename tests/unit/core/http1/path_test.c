/* Paths as they are compared with rules. */
#include "core/http1/path.h"

#include "tests/unit/test.h"

#include "core/base/str.h"

TEST(a_path_is_decoded_and_its_dot_segments_are_removed)
{
    static const struct {
        const char *path, *normal;
    } cases[] = {
        { "", "/" },
        { "/", "/" },
        { "/a", "/a" },
        { "/a/", "/a/" },
        { "/a/b/../c", "/a/c" },
        { "/a/b/..", "/a/" },
        { "/a/..", "/" },
        { "/a/../b/", "/b/" },
        { "/./a/./b/.", "/a/b/" },
        { "/a/%2e%2E/b", "/b" },
        { "/a/.%2e/b", "/b" },
        { "/a/...", "/a/..." },
        { "/a/..b/.c", "/a/..b/.c" },
        { "/%76%31/x%20y", "/v1/x y" },
        { "/a%3fb%23c", "/a?b#c" },
        { "/100%25", "/100%" },
        { "/100%25ab", "/100%ab" },
        { "/\xc3\xa4", "/\xc3\xa4" },
        { "/%C3%A4", "/\xc3\xa4" },
        { "/a;b=c/d", "/a;b=c/d" },
        { "/a/...;x", "/a/...;x" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b = { 0 };
        struct err err = { 0 };

        buf_adds(&b, "GET ");
        if (http1_path_normalize(http1_text_of(cases[i].path), &b, &err) < 0 || !str_eq(b.data + 4, cases[i].normal) ||
            strlen(b.data) != b.len)
            fail_msg("%s: '%s' %s", cases[i].path, b.data, err.msg);
        buf_done(&b);
    }
}

TEST(EG07_paths_that_servers_read_differently_are_refused)
{
    static const char *const cases[] = {
        "a",          "*",          "http://a/",    "/a%2fb",   "/a%2Fb",     "/a%5cb",    "/a\\b",     "/a%00",
        "/%0d%0aX:",  "/%7f",       "/%",           "/%a",      "/%zz",       "/%u0041",   "//",        "//a",
        "/a//b",      "/a//",       "/..",          "/../a",    "/a/../../b", "/%2e%2e/a", "/a/..;/b",  "/a/.;x/b",
        "/a/..%3b/b", "/a/%2e.;/b", "/%252e%252e/", "/a%252fb", "/a%255cb",   "/a%2500",   "/a%25252f", "/a/./../..",
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf b = { 0 };
        struct err err = { 0 };

        buf_adds(&b, "GET ");
        if (http1_path_normalize(http1_text_of(cases[i]), &b, &err) == 0)
            fail_msg("%s accepted as %s", cases[i], b.data + 4);
        assert_int_equal(err.id, ERR_HTTP_MALFORMED);
        assert_string_equal(b.data, "GET ");
        assert_int_equal(b.len, 4);
        buf_done(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_path_is_decoded_and_its_dot_segments_are_removed),
        RUN(EG07_paths_that_servers_read_differently_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
