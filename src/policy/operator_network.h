/* operator_network.h - what the operator limits say about the network. Part of policy.h. */
#pragma once

#include "policy/policy.h"

/* Refuses a network if the operator forbids it, and a secret for a host that the operator denies.
 * `where` begins the message ("network", "--allow"), `operator` is its subject. */
int operator_network_check(const struct operator_limits *f, const struct network_policy *n, const char *where,
                           const char *operator, struct err * err);
/* Puts the operator's denials before the rules, unless they stand there already. The holder owns
 * the text of `n`. */
int operator_network_narrow(const struct operator_limits *f, struct network_policy *n, struct err *err);

/* Refuses rules that allow localhost, or an address or a prefix which lies in a closed range as a
 * whole, because they would have no effect. `open` are the prefixes that the operator opened;
 * `setting` is the operator's way to open more, for the message. */
int operator_network_check_addresses(const struct network_policy *n, const struct ip_prefix *open, size_t nopen,
                                     const char *where, const char *setting, struct err *err);

/* For readers of the operator limits. */
int operator_network_deny(struct operator_limits *f, const char *lines, struct err *err);
/* "10.1.0.0/16,fd00:1::/32"; the caller frees. */
char *operator_network_open_ranges(const struct operator_limits *f) MUST_USE;
bool operator_network_open(struct operator_limits *f, const struct ip_prefix *range); /* false: too many */
