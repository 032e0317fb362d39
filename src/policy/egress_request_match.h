/* egress_request_match.h - the attributes `methods` and `path` of an egress rule, as text. Part of
 * egress_rules.h. */
#pragma once

#include "policy/egress_rules.h"

/* "GET,HEAD" in any letter case. */
int egress_request_match_set_methods(struct egress_request_match *m, const char *text, size_t len, struct err *err);
/* A path as in a URL, or with spaces; a final '*' stands for any rest. */
int egress_request_match_set_path(struct egress_request_match *m, const char *text, size_t len, struct err *err);
/* " methods=GET path=/v1/images", or nothing. */
void egress_request_match_write(const struct egress_request_match *m, struct buf *out);
/* The path as in a URL, with its final '*'. */
void egress_request_match_write_path(const struct egress_request_match *m, struct buf *out);
bool egress_request_match_is_empty(const struct egress_request_match *m);
