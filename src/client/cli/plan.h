/* plan.h - `cove run --dry-run`: prints what would be started and enforced,
 * without starting anything. */
#pragma once

#include "client/cli/program.h"
#include "client/cli/run_options.h"

#include "core/base/buf.h"

void plan_print(const struct run_options *r, const struct program *p, struct buf *out);
void plan_json(const struct run_options *r, const struct program *p, struct buf *out);
