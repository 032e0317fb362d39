#include "tests/unit/test.h"

#include "core/base/str.h"
#include "policy/closed_ranges.h"

static const char *closed(const char *text, const char *const *prefixes)
{
    struct ip_prefix open[4];
    struct ip_address a;
    size_t n = 0;

    for (; prefixes && prefixes[n]; n++)
        if (!ip_prefix_parse(prefixes[n], strlen(prefixes[n]), &open[n]))
            fail_msg("%s", prefixes[n]);
    if (!ip_address_parse(text, strlen(text), &a))
        fail_msg("%s", text);
    return closed_range_of(&a, open, n);
}

static void must_be(const char *text, const char *const *prefixes, const char *range)
{
    const char *found = closed(text, prefixes);

    if (!str_eq(found ? found : "", range ? range : ""))
        fail_msg("%s: '%s' instead of '%s'", text, found ? found : "", range ? range : "");
}

TEST(EG03_each_closed_range_is_closed_from_its_first_to_its_last_address)
{
    static const struct {
        const char *first, *last, *range;
    } cases[] = {
        { "0.0.0.0", "0.255.255.255", "this-network" },
        { "10.0.0.0", "10.255.255.255", "private" },
        { "100.64.0.0", "100.127.255.255", "shared" },
        { "127.0.0.0", "127.255.255.255", "loopback" },
        { "169.254.0.0", "169.254.255.255", "link-local" },
        { "172.16.0.0", "172.31.255.255", "private" },
        { "192.0.0.0", "192.0.0.255", "protocol" },
        { "192.0.2.0", "192.0.2.255", "documentation" },
        { "192.88.99.0", "192.88.99.255", "relay" },
        { "192.168.0.0", "192.168.255.255", "private" },
        { "198.18.0.0", "198.19.255.255", "benchmark" },
        { "198.51.100.0", "198.51.100.255", "documentation" },
        { "203.0.113.0", "203.0.113.255", "documentation" },
        { "224.0.0.0", "239.255.255.255", "multicast" },
        { "240.0.0.0", "255.255.255.254", "reserved" },
        { "255.255.255.255", "255.255.255.255", "broadcast" },
        { "::", "::", "this-network" },
        { "::1", "::1", "loopback" },
        { "::2", "::ffff:ffff", "embedded-ipv4" },
        { "64:ff9b:1::", "64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "local-nat64" },
        { "100::", "100::ffff:ffff:ffff:ffff", "discard" },
        { "2001::", "2001:0:ffff:ffff:ffff:ffff:ffff:ffff", "embedded-ipv4" },
        { "2001:1::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "protocol" },
        { "2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff", "documentation" },
        { "2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "embedded-ipv4" },
        { "3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff", "documentation" },
        { "4000::", "5eff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "reserved" },
        { "5f00::", "5f00:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "segment-routing" },
        { "fc00::", "fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "private" },
        { "fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "link-local" },
        { "fec0::", "feff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "private" },
        { "ff00::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "multicast" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        must_be(cases[i].first, NULL, cases[i].range);
        must_be(cases[i].last, NULL, cases[i].range);
    }
}

TEST(public_addresses_next_to_closed_ranges_are_not_closed)
{
    static const char *const open[] = {
        "1.0.0.0",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "126.255.255.255",
        "128.0.0.0",
        "169.253.255.255",
        "169.255.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "191.255.255.255",
        "192.0.1.0",
        "192.0.3.0",
        "192.88.98.255",
        "192.167.255.255",
        "192.169.0.0",
        "198.17.255.255",
        "198.20.0.0",
        "223.255.255.255",
        "168.63.129.15",
        "2000::",
        "2001:200::1",
        "2003::1",
        "2606:4700:4700::1111",
        "2a00:1450::1",
        "3fff:1000::1",
        "3ffe::1",
        "2600:1:2:3:200:5eff:a:b",
    };

    for (size_t i = 0; i < ARRAY_LEN(open); i++)
        must_be(open[i], NULL, NULL);
}

TEST(EG01_metadata_services_of_clouds_are_closed_by_name)
{
    static const char *const metadata[] = { "169.254.169.254", "169.254.169.123", "169.254.170.2",
                                            "169.254.170.23",  "100.100.100.200", "192.0.0.192",
                                            "168.63.129.16",   "fd00:ec2::254",   "fd20:ce::254" };

    for (size_t i = 0; i < ARRAY_LEN(metadata); i++)
        must_be(metadata[i], NULL, "metadata");
}

TEST(EG02_loopback_inside_an_IPv6_address_is_closed_in_every_form)
{
    static const char *const embedded[] = {
        "::ffff:127.0.0.1",   "::ffff:8.8.8.8",        "::127.0.0.1",   "::ffff:0:127.0.0.1",
        "64:ff9b::127.0.0.1", "64:ff9b::8.8.8.8",      "2002:7f00:1::", "2001:0:1:2:3:4:80ff:fffe",
        "2a00::5efe:7f00:1",  "2a00::200:5efe:7f00:1",
    };

    for (size_t i = 0; i < ARRAY_LEN(embedded); i++)
        must_be(embedded[i], NULL, "embedded-ipv4");
}

TEST(an_opened_prefix_opens_itself_and_nothing_next_to_it)
{
    static const char *const open[] = { "10.1.0.0/16", "fd00:1::/32", "127.0.0.1", NULL };

    must_be("10.1.2.3", open, NULL);
    must_be("10.2.0.0", open, "private");
    must_be("fd00:1::5", open, NULL);
    must_be("fd00:2::5", open, "private");
    must_be("127.0.0.1", open, NULL);
    must_be("127.0.0.2", open, "loopback");
    must_be("::1", open, "loopback");
    must_be("::ffff:10.1.2.3", open, "embedded-ipv4");
    must_be("8.8.8.8", open, NULL);
}

TEST(an_opened_gateway_does_not_open_the_closed_addresses_behind_it)
{
    static const char *const nat64[] = { "64:ff9b::/96", NULL };
    static const char *const both[] = { "64:ff9b::/96", "10.0.0.0/8", NULL };
    static const char *const all[] = { "::/0", NULL };

    must_be("64:ff9b::8.8.8.8", nat64, NULL);
    must_be("64:ff9b::127.0.0.1", nat64, "loopback");
    must_be("64:ff9b::169.254.169.254", nat64, "metadata");
    must_be("64:ff9b::10.0.0.1", nat64, "private");
    must_be("64:ff9b::10.0.0.1", both, NULL);
    must_be("2002:7f00:1::", all, "loopback");
    must_be("2001:0:1:2:3:4:80ff:fffe", all, "loopback");
    must_be("2a00::5efe:7f00:1", all, "loopback");
    must_be("::ffff:127.0.0.1", all, "loopback");
    must_be("::1", all, NULL);
    must_be("fe80::1", all, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(EG03_each_closed_range_is_closed_from_its_first_to_its_last_address),
        RUN(public_addresses_next_to_closed_ranges_are_not_closed),
        RUN(EG01_metadata_services_of_clouds_are_closed_by_name),
        RUN(EG02_loopback_inside_an_IPv6_address_is_closed_in_every_form),
        RUN(an_opened_prefix_opens_itself_and_nothing_next_to_it),
        RUN(an_opened_gateway_does_not_open_the_closed_addresses_behind_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
