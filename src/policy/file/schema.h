/* schema.h - reads a document by a table of keys, and the value types that policies and operator
 * limits share. */
#pragma once

#include "policy/policy.h"
#include "core/doc/doc.h"

struct schema_key {
    const char *name;
    void (*read)(void *arg, const struct doc *value);
    bool is_hidden; /* recognized only to refuse it with a reason; never suggested */
};

/* Calls the reader of every key in the table; every other key is a problem that names the nearest
 * known key. `where` is "" at the top, else the path of the map: "limits". */
void schema_map(struct problems *pr, const struct doc *map, const char *where, const struct schema_key *keys, size_t n,
                void *arg);

/* Each function reports the problem and returns false, or writes its result. */
bool schema_text(struct problems *pr, const struct doc *d, const char *where);
bool schema_list(struct problems *pr, const struct doc *d, const char *where);
bool schema_version(struct problems *pr, const struct doc *map);
bool schema_limit(struct problems *pr, const struct doc *d, enum limit *ret, uint64_t *value); /* reads key and value */
/* reads a value */
bool schema_limit_name(struct problems *pr, const struct doc *d, const char *where, enum limit *ret);
bool schema_grant(struct problems *pr, const struct doc *d, const char *where, enum grant *ret);
bool schema_syscall(struct problems *pr, const struct doc *d, const char *where, unsigned *ret);
bool schema_workspace(struct problems *pr, const struct doc *d, enum policy_workspace *ret);
bool schema_driver(struct problems *pr, const struct doc *d, const char *where, enum driver_id *ret);

extern const struct doc_rules schema_rules; /* for policies, operator limits, and settings of other programs */
