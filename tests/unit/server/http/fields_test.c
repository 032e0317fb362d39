/* Header fields that decide access or content: Host, Origin, Range, entity tags. */
#include "tests/unit/test.h"

#include "core/base/str.h"
#include "server/http/origin.h"
#include "server/http/range.h"

static const char *const hosts[] = { "cove.example", "Other.Example", NULL };
static const char *const any[] = { "*", NULL };

TEST(a_host_is_an_address_localhost_or_listed)
{
    static const struct {
        const char *value;
        enum err_id err;
    } cases[] = {
        { "localhost", ERR_NONE },
        { "LocalHost:80", ERR_NONE },
        { "127.0.0.1:65535", ERR_NONE },
        { "192.168.7.7", ERR_NONE },
        { "[::1]", ERR_NONE },
        { "[2001:DB8::1]:443", ERR_NONE },
        { "cove.example", ERR_NONE },
        { "COVE.example:8700", ERR_NONE },
        { "other.example", ERR_NONE },
        { "evil.example", ERR_HTTP_HOST },
        { "localhost.evil.example", ERR_HTTP_HOST },
        { "localhost.", ERR_HTTP_HOST },
        { "cove.example.", ERR_HTTP_HOST },
        { "127.0.0.1.evil.example", ERR_HTTP_HOST },
        { "127.1", ERR_HTTP_HOST }, /* a host name, although some resolvers accept it as an address */
        { "2130706433", ERR_HTTP_HOST },
        { "", ERR_HTTP_MALFORMED },
        { ":80", ERR_HTTP_MALFORMED },
        { "localhost:", ERR_HTTP_MALFORMED },
        { "localhost:65536", ERR_HTTP_MALFORMED },
        { "localhost:80x", ERR_HTTP_MALFORMED },
        { "localhost/x", ERR_HTTP_MALFORMED },
        { "a@localhost", ERR_HTTP_MALFORMED },
        { "[::1", ERR_HTTP_MALFORMED },
        { "[::1]x", ERR_HTTP_MALFORMED },
        { "[127.0.0.1]", ERR_HTTP_MALFORMED },
        { "::1", ERR_HTTP_MALFORMED },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = { 0 };
        int ret = origin_check_host(cases[i].value, hosts, &err);

        if (err.id != cases[i].err || (ret == 0) != (err.id == ERR_NONE))
            fail_msg("'%s': %s", cases[i].value, err.msg);
    }
    assert_int_equal(origin_check_host("evil.example", any, NULL), 0);
    assert_int_equal(origin_check_host("evil.example", NULL, NULL), -1);
    assert_int_equal(origin_check_host("localhost", NULL, NULL), 0);
}

TEST(an_origin_is_listed_or_our_own_and_compared_whole)
{
    static const char *const origins[] = { "https://page.example", NULL };

    assert_true(origin_allowed("https://page.example", "localhost", false, origins));
    assert_true(origin_allowed("http://localhost:8700", "localhost:8700", false, origins));
    assert_true(origin_allowed("https://cove.example", "Cove.Example", false, NULL));
    assert_false(origin_allowed("https://page.example.evil", "localhost", false, origins));
    assert_false(origin_allowed("http://page.example", "localhost", false, origins));
    assert_false(origin_allowed("http://localhost:8701", "localhost:8700", false, origins));
    assert_false(origin_allowed("null", "localhost", false, origins));
    assert_false(origin_allowed("", "localhost", false, origins));
    assert_false(origin_allowed("file://localhost", "localhost", false, origins));
    assert_false(origin_allowed("http://localhost", NULL, false, origins));
    assert_true(origin_allowed("https://cove.example", "cove.example", true, NULL));
    assert_false(origin_allowed("http://cove.example", "cove.example", true, NULL));
}

TEST(one_range_is_honoured_and_nothing_else)
{
    static const struct {
        const char *header;
        uint64_t size;
        enum range_kind kind;
        uint64_t from, len;
    } cases[] = {
        { NULL, 10, RANGE_WHOLE, 0, 10 },
        { "bytes=0-0", 10, RANGE_PART, 0, 1 },
        { "bytes=9-", 10, RANGE_PART, 9, 1 },
        { "bytes=0-99", 10, RANGE_PART, 0, 10 },
        { "bytes=-3", 10, RANGE_PART, 7, 3 },
        { "bytes=-30", 10, RANGE_PART, 0, 10 },
        { "bytes= 2-3 ", 10, RANGE_PART, 2, 2 },
        { "bytes=10-", 10, RANGE_UNSATISFIABLE, 0, 10 },
        { "bytes=-0", 10, RANGE_UNSATISFIABLE, 0, 10 },
        { "bytes=0-", 0, RANGE_UNSATISFIABLE, 0, 0 },
        { "bytes=-1", 0, RANGE_UNSATISFIABLE, 0, 0 },
        { "bytes=3-2", 10, RANGE_WHOLE, 0, 10 },
        { "bytes=0-1,4-5", 10, RANGE_WHOLE, 0, 10 },
        { "bytes=-", 10, RANGE_WHOLE, 0, 10 },
        { "bytes=--1", 10, RANGE_WHOLE, 0, 10 },
        { "bytes=1", 10, RANGE_WHOLE, 0, 10 },
        { "Bytes=0-1", 10, RANGE_WHOLE, 0, 10 },
        { "bytes=99999999999999999999-", 10, RANGE_WHOLE, 0, 10 },
        { "bytes=0-99999999999999999999", 10, RANGE_WHOLE, 0, 10 },
        { "bytes=9223372036854775807-", 10, RANGE_UNSATISFIABLE, 0, 10 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint64_t from, len;
        enum range_kind kind = range_parse(cases[i].header, cases[i].size, &from, &len);

        if (kind != cases[i].kind || from != cases[i].from || len != cases[i].len)
            fail_msg("%s of %" PRIu64 ": %d %" PRIu64 " %" PRIu64, cases[i].header, cases[i].size, kind, from, len);
    }
}

TEST(tags_are_compared_whole_and_weak_ones_only_where_that_is_allowed)
{
    assert_true(range_tag_listed("\"a\"", "\"a\"", false));
    assert_true(range_tag_listed("\"x\", \"a\"", "\"a\"", false));
    assert_true(range_tag_listed("*", "\"a\"", false));
    assert_true(range_tag_listed("W/\"a\"", "\"a\"", true));
    assert_false(range_tag_listed("W/\"a\"", "\"a\"", false));
    assert_false(range_tag_listed("\"ab\"", "\"a\"", false));
    assert_false(range_tag_listed("a", "\"a\"", false));
    assert_false(range_tag_listed("\"a", "\"a\"", false));
    assert_false(range_tag_listed("", "\"a\"", false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_host_is_an_address_localhost_or_listed),
        RUN(an_origin_is_listed_or_our_own_and_compared_whole),
        RUN(one_range_is_honoured_and_nothing_else),
        RUN(tags_are_compared_whole_and_weak_ones_only_where_that_is_allowed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
