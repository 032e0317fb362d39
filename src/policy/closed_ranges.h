/* closed_ranges.h - addresses that a sandbox never reaches, whatever its rules say: loopback,
 * private, link-local, metadata, and all spellings of them inside IPv6 addresses. They are checked
 * on the binary form, after resolution, at every connection. */
#pragma once

#include "policy/ip_address.h"

/* The name of the closed range that holds the address ("loopback", "private", "metadata", ...), or
 * NULL. `open` are the operator's exemptions (egress.openRanges). */
const char *closed_range_of(const struct ip_address *a, const struct ip_prefix *open, size_t nopen);
