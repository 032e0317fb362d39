/* Names and addresses: from programs in a sandbox to cove-egress, and from users in rules.
 *
 * Checked in addition to memory errors: a normalised name and a written address read to
 * themselves; no name is one that libc's parser of addresses takes; libc and cove agree on what an
 * address is, except that libc accepts more. */
#include "policy/closed_ranges.h"
#include "policy/hostname.h"

#include "core/base/str.h"

#include <arpa/inet.h>

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_name(const char *text, size_t size)
{
    char name[HOSTNAME_MAX + 1], again[HOSTNAME_MAX + 1];
    struct err err = { 0 };
    struct in_addr v4;
    struct ip_address a;

    if (hostname_normalize(text, size, name, &err) < 0) {
        must(err.msg[0]);
        return;
    }
    must(hostname_normalize(name, strlen(name), again, &err) == 0 && str_eq(name, again));
    must(!inet_aton(name, &v4) && !ip_address_parse(name, strlen(name), &a));
    must(hostname_matches("*", name) && hostname_matches(name, name));
    for (const char *p = name; *p; p++)
        must((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || strchr("-_.", *p));
}

static void check_pattern(const char *text, size_t size)
{
    char pattern[HOSTNAME_MAX + 1], again[HOSTNAME_MAX + 1];

    if (hostname_pattern_normalize(text, size, pattern, NULL) < 0)
        return;
    must(hostname_pattern_normalize(pattern, strlen(pattern), again, NULL) == 0 && str_eq(pattern, again));
    must(pattern[0] != '*' || !pattern[1] || !hostname_matches(pattern, pattern + 2));
}

static void check_address(const char *text, size_t size)
{
    struct ip_address a, again;
    struct ip_prefix p, all = { .bits = 0 };
    char written[IP_ADDRESS_TEXT];
    auto_free char *copy = str_dup_n(text, size);
    uint8_t libc[16];

    if (ip_prefix_parse(text, size, &p))
        must(ip_prefix_contains(&p, &p.address));
    if (!ip_address_parse(text, size, &a))
        return;
    must(inet_pton(a.family == 4 ? AF_INET : AF_INET6, copy, libc) == 1);
    must(memcmp(libc, a.bytes, a.family == 4 ? 4 : 16) == 0);
    ip_address_format(&a, written);
    must(ip_address_parse(written, strlen(written), &again) && ip_address_equal(&a, &again));
    all.address.family = a.family;
    must(closed_range_of(&a, NULL, 0) || !closed_range_of(&a, &all, 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = size ? (const char *)data : "";

    check_name(text, size);
    check_pattern(text, size);
    check_address(text, size);
    return 0;
}
