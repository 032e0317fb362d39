/* driver_states.h - the drivers as a server lists them: allowed, available, and why not. */
#pragma once

#include "core/base/jsonw.h"
#include "policy/languages.h"
#include "policy/policy.h"

/* Writes the member "drivers" of an open object. f may be NULL: every driver is allowed. */
void driver_states_json(const struct operator_limits *f, struct jsonw *w);
/* The program of a language in sandboxes of the default driver. */
int driver_states_find_language(const struct operator_limits *f, const struct language *l, char *path, size_t cap,
                                struct err *err);
