/* plan.h - `cove run --dry-run`: what would be started and what would be enforced, without starting anything. */
#pragma once

#include "cli/program.h"
#include "cli/request.h"

#include "base/buf.h"

void plan_print(const struct request *r, const struct program *p, struct buf *out);
void plan_json(const struct request *r, const struct program *p, struct buf *out);
