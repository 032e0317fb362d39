#include "tests/unit/test.h"

#include "core/base/str.h"
#include "policy/ip_address.h"

#include <arpa/inet.h>

TEST(addresses_have_one_written_form)
{
    static const struct {
        const char *text, *written; /* NULL: refused */
    } cases[] = {
        { "127.0.0.1", "127.0.0.1" },
        { "255.255.255.255", "255.255.255.255" },
        { "::", "::" },
        { "::1", "::1" },
        { "1::", "1::" },
        { "2001:DB8::00a1", "2001:db8::a1" },
        { "2001:db8:0:0:1:0:0:1", "2001:db8::1:0:0:1" },
        { "2001:db8:0:1:1:1:1:1", "2001:db8:0:1:1:1:1:1" },
        { "0:0:0:0:0:0:0:1", "::1" },
        { "1:2:3:4:5:6:7:8", "1:2:3:4:5:6:7:8" },
        { "1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0" },
        { "::2:3:4:5:6:7:8", "0:2:3:4:5:6:7:8" },
        { "::ffff:127.0.0.1", "::ffff:127.0.0.1" },
        { "::ffff:7f00:1", "::ffff:127.0.0.1" },
        { "64:ff9b::1.2.3.4", "64:ff9b::102:304" },
        { "1:2:3:4:5:6:1.2.3.4", "1:2:3:4:5:6:102:304" },
        /* EG02: what libc turns into 127.0.0.1, and near misses */
        { "127.1", NULL },
        { "127.0.1", NULL },
        { "0x7f.0.0.1", NULL },
        { "0177.0.0.1", NULL },
        { "127.0.0.01", NULL },
        { "2130706433", NULL },
        { "127.0.0.1.", NULL },
        { "127.0.0.256", NULL },
        { "127.0.0.1000", NULL },
        { "1.2.3", NULL },
        { "1.2.3.4.5", NULL },
        { " 1.2.3.4", NULL },
        { "", NULL },
        { ":", NULL },
        { ":::", NULL },
        { "1:2:3:4:5:6:7", NULL },
        { "1:2:3:4:5:6:7:8:9", NULL },
        { "1:2:3:4:5:6:7:8::", NULL },
        { "1::2::3", NULL },
        { "1:2:3:4:5:6:7:", NULL },
        { ":1:2:3:4:5:6:7", NULL },
        { "12345::", NULL },
        { "::1%lo", NULL },
        { "[::1]", NULL },
        { "::1.2.3", NULL },
        { "::01.2.3.4", NULL },
        { "1:2:3:4:5:6:7:1.2.3.4", NULL },
        { "::1.2.3.4:5", NULL },
        { "g::", NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ip_address a, again;
        char text[IP_ADDRESS_TEXT];
        uint8_t libc[16];
        bool ok = ip_address_parse(cases[i].text, strlen(cases[i].text), &a);

        if (ok != (cases[i].written != NULL))
            fail_msg("'%s': %d", cases[i].text, ok);
        if (!ok)
            continue;
        assert_string_equal(ip_address_format(&a, text), cases[i].written);
        assert_true(ip_address_parse(text, strlen(text), &again) && ip_address_equal(&a, &again));
        assert_int_equal(inet_pton(a.family == 4 ? AF_INET : AF_INET6, cases[i].text, libc), 1);
        assert_memory_equal(libc, a.bytes, a.family == 4 ? 4 : 16);
    }
}

TEST(a_prefix_has_no_bits_after_its_length)
{
    static const struct {
        const char *text;
        int bits; /* -1: refused */
    } cases[] = {
        { "10.0.0.0/8", 8 },      { "0.0.0.0/0", 0 },       { "192.0.2.1", 32 },   { "192.0.2.1/32", 32 },
        { "2001:db8::/32", 32 },  { "::1", 128 },           { "::/0", 0 },         { "10.0.0.1/8", -1 },
        { "10.0.0.0/33", -1 },    { "10.0.0.0/", -1 },      { "10.0.0.0/08", -1 }, { "10.0.0.0/8/8", -1 },
        { "10.0.0.0/ 8", -1 },    { "10/8", -1 },           { "::/129", -1 },      { "2001:db8::1/32", -1 },
        { "192.0.2.128/24", -1 }, { "192.0.2.128/25", 25 }, { "/8", -1 },          { "10.0.0.0/1000", -1 },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ip_prefix p;
        bool ok = ip_prefix_parse(cases[i].text, strlen(cases[i].text), &p);

        if (ok != (cases[i].bits >= 0))
            fail_msg("'%s': %d", cases[i].text, ok);
        if (ok)
            assert_int_equal(p.bits, cases[i].bits);
    }
}

TEST(a_prefix_contains_addresses_of_its_family_up_to_its_last_bit)
{
    static const struct {
        const char *prefix, *address;
        bool contains;
    } cases[] = {
        { "172.16.0.0/12", "172.31.255.255", true },
        { "172.16.0.0/12", "172.32.0.0", false },
        { "0.0.0.0/0", "8.8.8.8", true },
        { "0.0.0.0/0", "::8", false },
        { "::/0", "8.8.8.8", false },
        { "::/0", "::ffff:8.8.8.8", true },
        { "2001:db8::/33", "2001:db8:7fff::", true },
        { "2001:db8::/33", "2001:db8:8000::", false },
        { "192.0.2.1", "192.0.2.1", true },
        { "192.0.2.1", "192.0.2.0", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ip_prefix p;
        struct ip_address a;

        assert_true(ip_prefix_parse(cases[i].prefix, strlen(cases[i].prefix), &p));
        assert_true(ip_address_parse(cases[i].address, strlen(cases[i].address), &a));
        if (ip_prefix_contains(&p, &a) != cases[i].contains)
            fail_msg("%s and %s", cases[i].prefix, cases[i].address);
    }
}

TEST(an_endpoint_is_an_address_with_or_without_a_port)
{
    static const char *const good[] = { "10.1.0.53", "10.1.0.53:53", "2001:db8::53", "[2001:db8::53]:65535" };
    static const char *const bad[] = {
        "",           "10.1.0.53:",    "10.1.0.53:0",     "10.1.0.53:65536", "[10.1.0.53]:53",
        "dns:53",     "10.1:53",       "[2001:db8::53]",  "[2001:db8::53",   "[2001:db8::53]:",
        "10.0.0.0/8", "10.1.0.53 :53", "2001:db8::53]:53"
    };

    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        if (!ip_endpoint_is_valid(good[i]))
            fail_msg("%s", good[i]);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (ip_endpoint_is_valid(bad[i]))
            fail_msg("%s", bad[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(addresses_have_one_written_form),
        RUN(a_prefix_has_no_bits_after_its_length),
        RUN(a_prefix_contains_addresses_of_its_family_up_to_its_last_bit),
        RUN(an_endpoint_is_an_address_with_or_without_a_port),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
