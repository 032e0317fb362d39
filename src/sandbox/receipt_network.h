/* receipt_network.h - the part of a receipt about connections through the egress proxy. Only
 * receipt.c includes it. */
#pragma once

#include "sandbox/receipt.h"

bool receipt_network_is_used(const struct receipt *r); /* something was reached, refused or failed */
void receipt_network_json(const struct receipt *r, bool with_rules, struct jsonw *w); /* NETWORK_EGRESS: one object */
void receipt_network_print(const struct receipt *r, struct buf *out);                 /* lines for a person */
