/* scope.h - scopes: the permissions of a key, as a set of bits. */
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

/* Adds all implied scopes: `admin` implies everything, `executions` and `files` imply their
 * :read. */
uint32_t scope_expand(uint32_t set);

const char *scope_name(enum scope s);
const char *scope_help(enum scope s);

/* Parses one name, including implied scopes. The error suggests the nearest existing name. */
int scope_parse(const char *name, uint32_t *ret_bits, struct err *err);
/* Parses names separated by single spaces, as the store keeps them. `admin` sets every bit. */
int scope_parse_list(const char *names, uint32_t *ret, struct err *err);
/* The inverse; implied scopes are omitted, so a set with `admin` is written as just `admin`. */
void scope_write_list(uint32_t set, struct buf *out);
