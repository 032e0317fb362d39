/* egress_rule_target.h - the target of an egress rule as text: "*.example.org:443",
 * "[2001:db8::/32]", "preset:pypi". Part of egress_rules.h. */
#pragma once

#include "policy/egress_rules.h"

/* Sets host or prefix, and ports, or only `preset`. The text is printable ASCII. */
int egress_rule_target_parse(const char *text, size_t len, struct egress_rule *r, struct err *err);
void egress_rule_target_write(const struct egress_rule *r, struct buf *out);
bool egress_rule_target_has_port(const struct egress_rule *r, uint16_t port);
/* A number from 1 to 65535 without leading zeros; *p moves after it. */
bool egress_rule_target_eat_port(const char **p, const char *end, uint16_t *ret);

/* The hosts of a preset as rules without an action: returns false after the last one. */
bool egress_rule_target_of_preset(const char *preset, size_t i, struct egress_rule *ret);
