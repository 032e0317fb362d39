/* hostname.h - host names from outside, in one spelling.
 *
 * A rule and a request must agree on what a name is, or a rule can be bypassed by spelling. So
 * names are normalised once: lower case, without the trailing dot. Everything that another parser
 * could read differently is refused: empty labels, characters other than letters, digits, '-' and
 * '_', and names that some resolvers take for an address ("127.1", "0x7f.1"). */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#define HOSTNAME_MAX 253

/* `text` need not end with a NUL. */
int hostname_normalize(const char *text, size_t len, char ret[HOSTNAME_MAX + 1], struct err *err);
/* A pattern is "*", "*.example.org" (one or more labels before it, and not the apex) or a name;
 * both are normalised. */
bool hostname_matches(const char *pattern, const char *host);
/* The same for a pattern. */
int hostname_pattern_normalize(const char *text, size_t len, char ret[HOSTNAME_MAX + 1], struct err *err);
