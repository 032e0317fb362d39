#include "tests/unit/test.h"

#include "server/audit/address.h"
#include "core/base/str.h"

#include <arpa/inet.h>

static struct sockaddr_storage addr_of(const char *text)
{
    struct sockaddr_storage ret = { 0 };
    struct sockaddr_in *v4 = (struct sockaddr_in *)(void *)&ret;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)(void *)&ret;

    if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
        ret.ss_family = AF_INET;
    else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1)
        ret.ss_family = AF_INET6;
    else
        fail_msg("%s", text);
    return ret;
}

static bool public(const char *text)
{
    struct sockaddr_storage a = addr_of(text);

    return address_is_public((struct sockaddr *)&a);
}

TEST(SR01_only_public_addresses_are_allowed)
{
    static const char *const closed[] = {
        "127.0.0.1",
        "127.255.255.254",
        "0.0.0.0",
        "10.0.0.1",
        "172.16.0.1",
        "172.31.255.255",
        "192.168.1.1",
        "169.254.169.254",
        "168.63.129.16",
        "100.64.0.1",
        "100.127.255.255",
        "192.0.0.192",
        "198.18.0.1",
        "198.19.255.255",
        "192.0.2.1",
        "198.51.100.7",
        "203.0.113.9",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:10.0.0.1",
        "::127.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "2002:7f00:1::",
        "2001:0:7f00:1::",
        "fe80::1",
        "fc00::1",
        "fd00:ec2::254",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "100::1",
        "3fff::1",
        "4000::1",
    };
    static const char *const open[] = { "1.1.1.1",      "8.8.8.8",         "172.15.255.255",
                                        "172.32.0.1",   "100.63.255.255",  "100.128.0.1",
                                        "192.0.1.1",    "223.255.255.255", "2606:4700:4700::1111",
                                        "2a00:1450::1", "::ffff:8.8.8.8" };

    for (size_t i = 0; i < ARRAY_LEN(closed); i++)
        if (public(closed[i]))
            fail_msg("%s is allowed", closed[i]);
    for (size_t i = 0; i < ARRAY_LEN(open); i++)
        if (!public(open[i]))
            fail_msg("%s is refused", open[i]);
    struct sockaddr local = { .sa_family = AF_UNIX };
    assert_false(address_is_public(&local));
    assert_false(address_is_allowed(&local, NULL, 0));
}

TEST(only_listed_networks_are_exceptions)
{
    struct ip_prefix nets[2];
    struct sockaddr_storage in = addr_of("10.1.2.3"), out = addr_of("10.2.2.3"), six = addr_of("fd00::7"),
                            mapped = addr_of("::ffff:10.1.9.9"), world = addr_of("8.8.8.8");
    struct err err = { 0 };

    assert_int_equal(address_net_parse("10.1.0.0/16", &nets[0], &err), 0);
    assert_int_equal(address_net_parse("fd00::/8", &nets[1], &err), 0);
    assert_true(address_is_allowed((struct sockaddr *)&in, nets, 2));
    assert_true(address_is_allowed((struct sockaddr *)&mapped, nets, 2));
    assert_true(address_is_allowed((struct sockaddr *)&six, nets, 2));
    assert_true(address_is_allowed((struct sockaddr *)&world, nets, 2));
    assert_false(address_is_allowed((struct sockaddr *)&out, nets, 2));
    assert_int_equal(address_net_parse("127.0.0.1", &nets[0], &err), 0);
    assert_int_equal(nets[0].bits, 32);
    assert_int_equal(address_net_parse("10.1.2.3/16", &nets[0], &err), 0);
    assert_true(address_is_allowed((struct sockaddr *)&in, nets, 1));
    static const char *const bad[] = { "",         "x",          "10.0.0.0/33", "10.0.0.0/",
                                       "10.0.0/8", "fd00::/129", "10.0.0.0/8x", "localhost" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (address_net_parse(bad[i], &nets[0], &err) == 0)
            fail_msg("'%s' was accepted", bad[i]);
}

TEST(SR01_unusual_notations_of_addresses_are_refused)
{
    static const char *const bad[] = { "2130706433", "0x7f000001",  "0x7f.0.0.1",       "0177.0.0.1",
                                       "127.1",      "127.0.1",     "127.0.0.1.",       "0",
                                       "[::1",       "[127.0.0.1]", "[fe80::1%25eth0]", "169.254.169.254.",
                                       "1.2.3.4.5",  "example.0x7f" };
    static const char *const names[] = { "example.org", "localhost", "a-1.example", "xn--bcher-kva.example",
                                         "10.example.org" };
    struct sockaddr_storage a;
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        if (address_literal(bad[i], &a, &err) != -1)
            fail_msg("'%s' was accepted", bad[i]);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (address_literal(names[i], &a, &err) != 0)
            fail_msg("'%s' must count as a name", names[i]);
    assert_int_equal(address_literal("127.0.0.1", &a, &err), 1);
    assert_false(address_is_public((struct sockaddr *)&a));
    assert_int_equal(address_literal("[::ffff:127.0.0.1]", &a, &err), 1);
    assert_false(address_is_public((struct sockaddr *)&a));
    assert_int_equal(address_literal("8.8.8.8", &a, &err), 1);
    assert_true(address_is_public((struct sockaddr *)&a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(SR01_only_public_addresses_are_allowed),
        RUN(only_listed_networks_are_exceptions),
        RUN(SR01_unusual_notations_of_addresses_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
