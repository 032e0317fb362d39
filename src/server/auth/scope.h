/* scope.h - what a key may do, as a set of named rights. */
#pragma once

#include "core/base/base.h"
#include "core/base/buf.h"
#include "core/base/err.h"

enum scope {
#define SCOPE(id, name, help) SCOPE_##id,
#include "server/auth/scopes.def"
#undef SCOPE
    SCOPE_COUNT,
};

#define SCOPE_BIT(id) (1u << (unsigned)SCOPE_##id)
#define SCOPE_ALL ((1u << (unsigned)SCOPE_COUNT) - 1u)

/* The set with all that its members hold: `admin` is everything, `executions` and `files` hold their :read. */
uint32_t scope_expand(uint32_t set);

const char *scope_name(enum scope s);
const char *scope_help(enum scope s);

/* One name, with what it holds. The error offers the nearest that exists. */
int scope_parse(const char *name, uint32_t *ret_bits, struct err *err);
/* Names separated by single spaces, as the store keeps them. `admin` gives every bit. */
int scope_parse_list(const char *names, uint32_t *ret, struct err *err);
/* The inverse; what another member holds is left out, so a set with `admin` is just that word. */
void scope_write_list(uint32_t set, struct buf *out);
