/* Queries as bytes, and the answers to them. libc's resolver parses the answers. */
#include "host/egress/dns_message.h"

#include "tests/unit/test.h"

#include "core/base/str.h"

#include <arpa/nameser.h>
#include <resolv.h>

#define MESSAGE(flags, counts, rest) "\x12\x34" flags counts rest, sizeof("\x12\x34" flags counts rest) - 1
#define ONE "\0\1\0\0\0\0\0\0"
#define EDNS_COUNTS "\0\1\0\0\0\0\0\1"
#define NAME    \
    "\x05"      \
    "Files\x07" \
    "example\x03org\0"
#define A_IN "\0\1\0\1"
#define OPT "\0\0\x29\x04\xd0\0\0\0\0\0\0"

TEST(a_query_is_read)
{
    static const struct {
        const char *data;
        size_t n;
        enum dns_query_kind kind;
        bool is_hostname, has_edns;
        const char *name;
    } cases[] = {
        { MESSAGE("\1\0", ONE, NAME A_IN), DNS_QUERY_READ, true, false, "files.example.org" },
        { MESSAGE("\1\0", EDNS_COUNTS, NAME A_IN OPT), DNS_QUERY_READ, true, true, "files.example.org" },
        { MESSAGE("\1\0", EDNS_COUNTS,
                  NAME A_IN "\0\0\x29\x04\xd0\0\0\x80\0\0\x0c\0\x0a\0\x08"
                            "cookie!!"),
          DNS_QUERY_READ, true, true, "files.example.org" },
        { MESSAGE("\1\0", ONE, "\x04_tcp\1a\0\0\x21\0\1"), DNS_QUERY_READ, true, false, "_tcp.a" },
        { MESSAGE("\1\0", EDNS_COUNTS, NAME A_IN "\0\0\x29\x04\xd0\0\1\0\0\0\0"), DNS_QUERY_VERSION, true, true,
          "files.example.org" },
        { MESSAGE("\1\0", ONE, NAME "\0\1\0\3"), DNS_QUERY_UNKNOWN, true, false, "files.example.org" }, /* class CH */
        { MESSAGE("\x29\0", ONE, NAME A_IN), DNS_QUERY_UNKNOWN, false, false, "" },                     /* UPDATE */
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct dns_query q;

        if (dns_query_read((const uint8_t *)cases[i].data, cases[i].n, &q) != cases[i].kind || q.id != 0x1234 ||
            q.is_hostname != cases[i].is_hostname || q.has_edns != cases[i].has_edns || !str_eq(q.name, cases[i].name))
            fail_msg("case %zu: '%s'", i, q.name);
    }
}

TEST(EG07_labels_that_are_no_host_name_are_not_a_name)
{
    static const struct {
        const char *data;
        size_t n;
    } cases[] = {
        { MESSAGE("\1\0", ONE, "\0" A_IN) }, /* the root */
        { MESSAGE("\1\0", ONE,
                  "\x0b"
                  "example.org\0" A_IN) }, /* a dot in a label */
        { MESSAGE("\1\0", ONE,
                  "\x03"
                  "a@b\x03org\0" A_IN) },
        { MESSAGE("\1\0", ONE,
                  "\x03"
                  "a\0b\x03org\0" A_IN) },
        { MESSAGE("\1\0", ONE,
                  "\x03"
                  "a b\x03org\0" A_IN) },
        { MESSAGE("\1\0", ONE, "\x02\xc3\xa4\x03org\0" A_IN) },
        { MESSAGE("\1\0", ONE,
                  "\x03"
                  "127\1"
                  "0\1"
                  "0\1"
                  "1\0" A_IN) },
        { MESSAGE("\1\0", ONE, "\x01*\x03org\0" A_IN) },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct dns_query q;

        if (dns_query_read((const uint8_t *)cases[i].data, cases[i].n, &q) != DNS_QUERY_READ || q.is_hostname)
            fail_msg("case %zu: '%s'", i, q.name);
    }
}

TEST(malformed_queries_are_refused_and_answers_are_dropped)
{
    static const struct {
        const char *data;
        size_t n;
        enum dns_query_kind kind;
    } cases[] = {
        { "", 0, DNS_QUERY_DROPPED },
        { "\x12\x34\1\0\0\1\0\0\0\0\0", 11, DNS_QUERY_DROPPED },
        { MESSAGE("\x81\0", ONE, NAME A_IN), DNS_QUERY_DROPPED },
        { MESSAGE("\1\0", "\0\0\0\0\0\0\0\0", ""), DNS_QUERY_MALFORMED },
        { MESSAGE("\1\0", "\0\2\0\0\0\0\0\0", NAME A_IN NAME A_IN), DNS_QUERY_MALFORMED },
        { MESSAGE("\1\0", "\0\1\0\1\0\0\0\0", NAME A_IN), DNS_QUERY_MALFORMED },
        { MESSAGE("\1\0", "\0\1\0\0\0\1\0\0", NAME A_IN), DNS_QUERY_MALFORMED },
        { MESSAGE("\1\0", EDNS_COUNTS, NAME A_IN), DNS_QUERY_MALFORMED },
        { MESSAGE("\1\0", EDNS_COUNTS, NAME A_IN OPT "x"), DNS_QUERY_MALFORMED },
        { MESSAGE("\1\0", EDNS_COUNTS, NAME A_IN "\0\0\x29\x04\xd0\0\0\0\0\0\1"), DNS_QUERY_MALFORMED },
        { MESSAGE("\1\0", EDNS_COUNTS, NAME A_IN "\0\0\xfa\x04\xd0\0\0\0\0\0\0"), DNS_QUERY_MALFORMED }, /* TSIG */
        { MESSAGE("\1\0", EDNS_COUNTS, NAME A_IN "\1x\0\0\x29\x04\xd0\0\0\0\0\0\0"), DNS_QUERY_MALFORMED },
        { MESSAGE("\1\0", "\0\1\0\0\0\0\0\2", NAME A_IN OPT OPT), DNS_QUERY_MALFORMED },
        { MESSAGE("\1\0", ONE, NAME A_IN "x"), DNS_QUERY_MALFORMED },
        { MESSAGE("\1\0", ONE, NAME "\0\1\0"), DNS_QUERY_MALFORMED },
        { MESSAGE("\1\0", ONE,
                  "\x05"
                  "Files"),
          DNS_QUERY_MALFORMED },
        { MESSAGE("\1\0", ONE,
                  "\x05"
                  "File"),
          DNS_QUERY_MALFORMED },
        { MESSAGE("\1\0", ONE, "\xc0\x0c" A_IN), DNS_QUERY_MALFORMED }, /* a pointer, to itself */
        { MESSAGE("\1\0", ONE, "\1a\xc0\x0c" A_IN), DNS_QUERY_MALFORMED },
        { MESSAGE("\1\0", ONE,
                  "\x40"
                  "a\0" A_IN),
          DNS_QUERY_MALFORMED },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint8_t out[DNS_ANSWER_MAX];
        struct dns_query q;

        if (dns_query_read((const uint8_t *)cases[i].data, cases[i].n, &q) != cases[i].kind)
            fail_msg("case %zu", i);
        if (cases[i].kind == DNS_QUERY_MALFORMED) {
            assert_int_equal(dns_answer_write(&q, DNS_ANSWER_FORMERR, 0, "why", out), 12);
            assert_memory_equal(out, "\x12\x34\x85\x81\0\0\0\0\0\0\0\0", 12);
        }
    }
}

TEST(names_have_253_characters_at_most)
{
    for (size_t last = 60; last <= 63; last++) {
        uint8_t data[400] = { 0, 1, 1, 0, 0, 1 };
        size_t n = 12;
        struct dns_query q;

        for (size_t i = 0; i < 4; i++) {
            size_t label = i < 3 ? 63 : last;

            data[n++] = (uint8_t)label;
            memset(data + n, 'a', label);
            n += label;
        }
        memcpy(data + n, "\0\0\1\0\1", 5);
        n += 5;
        bool fits = 3 * 64 + last <= HOSTNAME_MAX;
        assert_int_equal(dns_query_read(data, n, &q), fits ? DNS_QUERY_READ : DNS_QUERY_MALFORMED);
        if (!fits)
            continue;
        assert_int_equal(strlen(q.name), 3 * 64 + last);
        uint8_t out[DNS_ANSWER_MAX];
        q.has_edns = true;
        assert_true(dns_answer_write(&q, DNS_ANSWER_ADDRESS, 1,
                                     "a long reason that is cut off somewhere, because no "
                                     "client prints such a long reason, and because the message has a limit",
                                     out) <= sizeof(out));
    }
}

static void read_answer(const char *data, size_t n, enum dns_answer answer, const char *why, ns_msg *ret,
                        uint8_t out[DNS_ANSWER_MAX])
{
    struct dns_query q;

    assert_int_equal(dns_query_read((const uint8_t *)data, n, &q), DNS_QUERY_READ);
    size_t len = dns_answer_write(&q, answer, 0xc6120005, why, out);
    if (ns_initparse(out, (int)len, ret) < 0)
        fail_msg("libc does not parse the answer");
    assert_int_equal(ns_msg_id(*ret), 0x1234);
    assert_int_equal(ns_msg_getflag(*ret, ns_f_qr), 1);
    assert_int_equal(ns_msg_getflag(*ret, ns_f_aa), 1);
    assert_int_equal(ns_msg_getflag(*ret, ns_f_rd), 1);
    assert_int_equal(ns_msg_getflag(*ret, ns_f_ra), 1);
    assert_int_equal(ns_msg_count(*ret, ns_s_qd), 1);
    assert_memory_equal(out + 12, NAME, sizeof(NAME) - 1); /* in the letter case of the query */
}

TEST(an_answer_has_one_address)
{
    uint8_t out[DNS_ANSWER_MAX];
    ns_msg m;
    ns_rr rr;

    read_answer(MESSAGE("\1\0", ONE, NAME A_IN), DNS_ANSWER_ADDRESS, NULL, &m, out);
    assert_int_equal(ns_msg_count(m, ns_s_an), 1);
    assert_int_equal(ns_msg_count(m, ns_s_ar), 0);
    assert_int_equal(ns_parserr(&m, ns_s_an, 0, &rr), 0);
    assert_string_equal(ns_rr_name(rr), "Files.example.org");
    assert_int_equal(ns_rr_type(rr), ns_t_a);
    assert_int_equal(ns_rr_ttl(rr), 60);
    assert_int_equal(ns_rr_rdlen(rr), 4);
    assert_memory_equal(ns_rr_rdata(rr), "\xc6\x12\0\5", 4);
}

TEST(a_refused_name_does_not_exist_and_says_why_to_clients_of_edns)
{
    uint8_t out[DNS_ANSWER_MAX];
    ns_msg m;
    ns_rr rr;

    read_answer(MESSAGE("\1\0", ONE, NAME A_IN), DNS_ANSWER_NXDOMAIN, "no rule allows it", &m, out);
    assert_int_equal(ns_msg_getflag(m, ns_f_rcode), ns_r_nxdomain);
    assert_int_equal(ns_msg_count(m, ns_s_an), 0);
    assert_int_equal(ns_msg_count(m, ns_s_ar), 0);
    read_answer(MESSAGE("\1\0", EDNS_COUNTS, NAME A_IN OPT), DNS_ANSWER_NXDOMAIN, "no rule allows it", &m, out);
    assert_int_equal(ns_msg_count(m, ns_s_ar), 1);
    assert_int_equal(ns_parserr(&m, ns_s_ar, 0, &rr), 0);
    assert_int_equal(ns_rr_type(rr), ns_t_opt);
    assert_int_equal(ns_rr_rdlen(rr), 6 + 17);
    assert_memory_equal(ns_rr_rdata(rr), "\0\x0f\0\x13\0\x0fno rule allows it", 23);
}

TEST(a_name_without_such_a_record_exists)
{
    uint8_t out[DNS_ANSWER_MAX];
    ns_msg m;

    read_answer(MESSAGE("\1\0", EDNS_COUNTS, NAME "\0\x1c\0\1" OPT), DNS_ANSWER_NODATA, NULL, &m, out);
    assert_int_equal(ns_msg_getflag(m, ns_f_rcode), ns_r_noerror);
    assert_int_equal(ns_msg_count(m, ns_s_an), 0);
    assert_int_equal(ns_msg_count(m, ns_s_ar), 1);
}

TEST(another_version_of_edns_is_answered_with_badvers)
{
    static const char data[] = "\x12\x34\1\0" EDNS_COUNTS NAME A_IN "\0\0\x29\x04\xd0\0\1\0\0\0\0";
    uint8_t out[DNS_ANSWER_MAX];
    struct dns_query q;

    dns_query_read((const uint8_t *)data, sizeof(data) - 1, &q);
    size_t n = dns_answer_write(&q, DNS_ANSWER_BADVERS, 0, NULL, out);
    assert_memory_equal(out + n - 11, "\0\0\x29\x04\xd0\1\0\0\0\0\0", 11);
}

TEST(messages_over_TCP_are_found_in_the_stream)
{
    static const uint8_t stream[] = "\0\3abc\0\1x\0";
    const uint8_t *message;
    size_t n, used;

    for (size_t i = 0; i < 5; i++)
        assert_int_equal(dns_tcp_read(stream, i, &message, &n, &used), DNS_TCP_MORE);
    assert_int_equal(dns_tcp_read(stream, 8, &message, &n, &used), DNS_TCP_MESSAGE);
    assert_ptr_equal(message, stream + 2);
    assert_int_equal(n, 3);
    assert_int_equal(used, 5);
    assert_int_equal(dns_tcp_read((const uint8_t *)"\0\0", 2, &message, &n, &used), DNS_TCP_BAD);
    assert_int_equal(dns_tcp_read((const uint8_t *)"\x10\1", 2, &message, &n, &used), DNS_TCP_BAD);
    uint8_t prefix[2];
    dns_tcp_prefix(0x1ff, prefix);
    assert_memory_equal(prefix, "\1\xff", 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(a_query_is_read),
        RUN(EG07_labels_that_are_no_host_name_are_not_a_name),
        RUN(malformed_queries_are_refused_and_answers_are_dropped),
        RUN(names_have_253_characters_at_most),
        RUN(an_answer_has_one_address),
        RUN(a_refused_name_does_not_exist_and_says_why_to_clients_of_edns),
        RUN(a_name_without_such_a_record_exists),
        RUN(another_version_of_edns_is_answered_with_badvers),
        RUN(messages_over_TCP_are_found_in_the_stream),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
