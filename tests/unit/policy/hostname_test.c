#include "tests/unit/test.h"

#include "core/base/str.h"
#include "policy/hostname.h"

TEST(EG07_names_have_one_spelling_or_are_refused)
{
    static const struct {
        const char *text, *name; /* NULL: refused */
        size_t len;              /* 0: that of the text */
    } cases[] = {
        { "example.com", "example.com" },
        { "EXAMPLE.Com", "example.com" },
        { "example.com.", "example.com" },
        { "xn--bcher-kva.example", "xn--bcher-kva.example" },
        { "_dmarc.a-b.example", "_dmarc.a-b.example" },
        { "localhost", "localhost" },
        { "10.example.org", "10.example.org" },
        { "a.b2", "a.b2" },
        { "example.com..", NULL },
        { ".example.com", NULL },
        { "a..b", NULL },
        { ".", NULL },
        { "", NULL },
        { "b\xc3\xbc"
          "cher.example",
          NULL },
        { "\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.1", NULL }, /* full-width digits */
        { "127\xe3\x80\x82"
          "0\xe3\x80\x82"
          "0\xe3\x80\x82"
          "1",
          NULL }, /* ideographic full stop */
        { "allowed@evil.example", NULL },
        { "example.com%00.evil.net", NULL },
        { "example.com\0.evil.net", NULL, 21 },
        { "example.com\t", NULL },
        { " example.com", NULL },
        { "example.com\\evil", NULL },
        { "example.com/", NULL },
        { "example.com:80", NULL },
        { "example.com#", NULL },
        { "[::1]", NULL },
        { "::1", NULL },
        { "*.example.com", NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char name[HOSTNAME_MAX + 1] = "unchanged";
        struct err err = { 0 };
        int rc = hostname_normalize(cases[i].text, cases[i].len ? cases[i].len : strlen(cases[i].text), name, &err);

        if ((rc == 0) != (cases[i].name != NULL))
            fail_msg("'%s': %d %s", cases[i].text, rc, err.msg);
        assert_string_equal(name, rc == 0 ? cases[i].name : "unchanged");
        if (rc < 0)
            assert_true(err.msg[0]);
    }
}

TEST(EG02_names_that_a_resolver_reads_as_an_address_are_refused)
{
    static const char *const bad[] = { "127.0.0.1",  "127.1",        "127.0.1",    "2130706433",   "0x7f000001",
                                       "0x7f.1",     "0177.0.0.1",   "00000177.1", "017700000001", "0",
                                       "127.0.0.1.", "example.0x7f", "1.2.3.4.5",  "0X7F.0.0.1",   "a.123" };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char name[HOSTNAME_MAX + 1];
        struct err err = { 0 };

        if (hostname_normalize(bad[i], strlen(bad[i]), name, &err) == 0)
            fail_msg("'%s' was accepted", bad[i]);
        if (hostname_pattern_normalize(bad[i], strlen(bad[i]), name, &err) == 0)
            fail_msg("'%s' was accepted as a pattern", bad[i]);
    }
}

TEST(names_and_labels_have_the_lengths_of_DNS)
{
    char text[300], name[HOSTNAME_MAX + 1];
    struct err err = { 0 };

    memset(text, 'a', sizeof(text));
    assert_int_equal(hostname_normalize(text, 63, name, &err), 0);
    assert_int_equal(hostname_normalize(text, 64, name, &err), -1);
    for (size_t i = 49; i < sizeof(text); i += 50)
        text[i] = '.';
    assert_int_equal(hostname_normalize(text, 253, name, &err), 0);
    assert_int_equal(strlen(name), 253);
    assert_int_equal(hostname_normalize(text, 254, name, &err), -1);
    memcpy(text, "*.", 2);
    assert_int_equal(hostname_pattern_normalize(text, 253, name, &err), 0);
    assert_int_equal(hostname_pattern_normalize(text, 254, name, &err), -1);
}

TEST(EG07_a_pattern_matches_whole_labels_and_not_the_apex)
{
    static const struct {
        const char *pattern, *host;
        bool matches;
    } cases[] = {
        { "*.example.com", "a.example.com", true },
        { "*.example.com", "a.b.example.com", true },
        { "*.example.com", "example.com", false },
        { "*.example.com", "evilexample.com", false },
        { "*.example.com", "example.com.evil.net", false },
        { "*.example.com", "a.example.com.evil.net", false },
        { "*.example.com", "a.example.org", false },
        { "example.com", "example.com", true },
        { "example.com", "a.example.com", false },
        { "example.com", "example.co", false },
        { "*", "anything", true },
        { "*", "", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        if (hostname_matches(cases[i].pattern, cases[i].host) != cases[i].matches)
            fail_msg("%s and %s", cases[i].pattern, cases[i].host);
}

TEST(a_star_stands_alone_or_for_the_first_labels)
{
    static const struct {
        const char *text, *pattern;
    } cases[] = {
        { "*", "*" },         { "*.Example.COM.", "*.example.com" },
        { "Name", "name" },   { "**", NULL },
        { "*example", NULL }, { "*.*.example", NULL },
        { "a.*", NULL },      { "a*.example", NULL },
        { "*.", NULL },       { "*..a", NULL },
        { "", NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char pattern[HOSTNAME_MAX + 1];
        struct err err = { 0 };
        int rc = hostname_pattern_normalize(cases[i].text, strlen(cases[i].text), pattern, &err);

        if ((rc == 0) != (cases[i].pattern != NULL))
            fail_msg("'%s': %d", cases[i].text, rc);
        if (rc == 0)
            assert_string_equal(pattern, cases[i].pattern);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(EG07_names_have_one_spelling_or_are_refused),
        RUN(EG02_names_that_a_resolver_reads_as_an_address_are_refused),
        RUN(names_and_labels_have_the_lengths_of_DNS),
        RUN(EG07_a_pattern_matches_whole_labels_and_not_the_apex),
        RUN(a_star_stands_alone_or_for_the_first_labels),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
