#include "tests/unit/test.h"

#include "core/base/str.h"
#include "server/http/uri.h"

static int parse(const char *target, struct uri *u, struct err *err)
{
    static char mem[8192];

    *err = (struct err){ 0 };
    return uri_parse(target, mem, u, err);
}

TEST(segments_are_decoded_once)
{
    static const struct {
        const char *target, *segs[4];
        bool slash;
    } cases[] = {
        { "/", { NULL }, true },
        { "/a", { "a" }, false },
        { "/a/b/", { "a", "b" }, true },
        { "/%61%2fb/c", { "a/b", "c" }, false },
        { "/%252e%252e", { "%2e%2e" }, false },
        { "/a+b", { "a+b" }, false }, /* a plus is not decoded in a path */
        { "/..;/...", { "..;", "..." }, false },
        { "/%e2%82%ac?x", { "\xe2\x82\xac" }, false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct uri u;
        struct err err;

        if (parse(cases[i].target, &u, &err) < 0)
            fail_msg("%s: %s", cases[i].target, err.msg);
        for (size_t k = 0; k < 4; k++)
            if (cases[i].segs[k] ? k >= u.nsegs || !str_eq(u.seg[k], cases[i].segs[k]) : k < u.nsegs)
                fail_msg("%s: segment %zu", cases[i].target, k);
        assert_int_equal(u.trailing_slash, cases[i].slash);
    }
}

TEST(ambiguous_paths_and_dot_segments_are_refused)
{
    static const char *const cases[] = { "",        "a",       "*",          "http://x/", "//",     "/a//b",
                                         "/a//",    "/.",      "/..",        "/a/../b",   "/%2e",   "/%2E%2e",
                                         "/a%2f..", "/%2fa",   "/a%2f%2fb",  "/a%2f",     "/%00",   "/a%",
                                         "/a%2",    "/a%gg",   "/a#b",       "/a b",      "/\x7f",  "/\xe4",
                                         "/%ff",    "/%c0%ae", "/%ed%a0%80", "/a?b=%zz",  "/a?%00", "/a?b=c#d",
                                         "/a?b=%ff" };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct uri u;
        struct err err;

        if (parse(cases[i], &u, &err) == 0)
            fail_msg("'%s' was accepted", cases[i]);
        assert_int_equal(err.id, ERR_HTTP_MALFORMED);
    }
}

TEST(query_parameters_are_decoded_and_must_be_unique)
{
    struct uri u;
    struct err err;

    assert_int_equal(parse("/x?a=1&b=%26%3d+x&c&&d=&e=f=g", &u, &err), 0);
    assert_int_equal(u.nquery, 5);
    assert_string_equal(uri_query(&u, "a"), "1");
    assert_string_equal(uri_query(&u, "b"), "&= x");
    assert_string_equal(uri_query(&u, "c"), "");
    assert_string_equal(uri_query(&u, "e"), "f=g");
    assert_null(uri_query(&u, "f"));
    assert_int_equal(parse("/x?a=1&%61=2", &u, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
}

TEST(numbers_of_segments_and_parameters_are_bounded)
{
    char text[4096] = "/";
    struct uri u;
    struct err err;

    for (size_t i = 0; i < URI_SEGMENTS_MAX; i++)
        memcpy(text + 2 * i, "/a", 3);
    assert_int_equal(parse(text, &u, &err), 0);
    strcat(text, "/a");
    assert_int_equal(parse(text, &u, &err), -1);
    assert_int_equal(err.id, ERR_HTTP_URI_LONG);
    strcpy(text, "/?");
    for (size_t i = 0; i < URI_QUERY_MAX; i++) {
        char pair[16] = { (char)('a' + i / 26), (char)('a' + i % 26), '&' };
        strcat(text, pair);
    }
    assert_int_equal(parse(text, &u, &err), 0);
    strcat(text, "zz");
    assert_int_equal(parse(text, &u, &err), -1);
    assert_int_equal(err.id, ERR_HTTP_URI_LONG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(segments_are_decoded_once),
        RUN(ambiguous_paths_and_dot_segments_are_refused),
        RUN(query_parameters_are_decoded_and_must_be_unique),
        RUN(numbers_of_segments_and_parameters_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
