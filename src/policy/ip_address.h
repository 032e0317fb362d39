/* ip_address.h - addresses and prefixes, parsed strictly: four decimal numbers without leading
 * zeros, or the text form of RFC 5952 without a zone. libc accepts more ("127.1", "0177.0.0.1"),
 * which a rule would not expect. */
#pragma once

#include "core/base/base.h"

#define IP_ADDRESS_TEXT 46 /* with the NUL */

struct ip_address {
    uint8_t family; /* 4 or 6 */
    uint8_t bytes[16];
};

struct ip_prefix {
    struct ip_address address; /* the bits after `bits` are 0 */
    uint8_t bits;
};

bool ip_address_parse(const char *text, size_t len, struct ip_address *ret);
char *ip_address_format(const struct ip_address *a, char ret[IP_ADDRESS_TEXT]); /* returns ret */
/* Whether the text is an address, alone or with a port: "10.1.0.53:5353", "[2001:db8::53]:5353". */
bool ip_endpoint_is_valid(const char *text);
bool ip_address_equal(const struct ip_address *a, const struct ip_address *b);
/* "10.0.0.0/8", "2001:db8::/32", or an address alone. Refuses bits that are set after `bits`. */
bool ip_prefix_parse(const char *text, size_t len, struct ip_prefix *ret);
bool ip_prefix_contains(const struct ip_prefix *p, const struct ip_address *a);
