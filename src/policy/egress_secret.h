/* egress_secret.h - a secret line of egress rules, field by field. Part of egress_rules.h. The name
 * must be set first, because messages contain it. */
#pragma once

#include "policy/egress_rules.h"

int egress_secret_set_name(struct egress_secret_rule *s, const char *name, size_t len, struct err *err);
int egress_secret_set_host(struct egress_secret_rule *s, const char *text, size_t len, struct err *err);
int egress_secret_set_header(struct egress_secret_rule *s, const char *name, size_t len, struct err *err);
int egress_secret_set_format(struct egress_secret_rule *s, const char *format, struct err *err);
void egress_secret_set_defaults(struct egress_secret_rule *s);
void egress_secret_write(const struct egress_secret_rule *s, struct buf *out);
