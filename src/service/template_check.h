/* template_check.h - whether the server's host has what a template promises, for its answers and
 * for new sandboxes. */
#pragma once

#include "core/base/jsonw.h"
#include "service/host_modules.h"
#include "service/spec.h"

/* Members of an open object: available, and if it is false reason, fix and missing. By the last
 * list of modules. */
void template_check_write_json(const struct host_modules *h, const char *spec_json, struct jsonw *w);

/* err: NULL, or that the template cannot be used on this host; details is a JSON object that
 * says more about it. */
typedef void template_checked_fn(void *arg, const struct err *err, const char *details);
/* Whether the host has the modules that the spec preloads. name and spec live until done, which
 * may be called before this returns. */
void template_check_modules(struct host_modules *h, const char *name, const struct spec *spec, uint64_t now_ns,
                            template_checked_fn *done, void *arg);
