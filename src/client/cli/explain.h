/* explain.h - a receipt in plain words, for `cove explain` and for the receipts that a server
 * keeps. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"

/* `in` is the JSON of a receipt, or of an object that has one under "receipt"; anything else is an
 * error. */
int explain_receipt(const struct buf *in, struct buf *out, struct err *err);
