/* explain.h - explains a receipt in plain words, for `cove explain` and `cove logs --receipt`. */
#pragma once

#include "core/base/buf.h"
#include "core/base/err.h"

/* `in` is the JSON of a receipt, or of an object with the member "receipt"; anything else
 * is an error. */
int explain_receipt(const struct buf *in, struct buf *out, struct err *err);
