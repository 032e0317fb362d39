/* invented_names.h - the addresses that the resolver of one sandbox has given to names.
 *
 * A name keeps its address until the sandbox ends or is bound anew after an unbind, and an address
 * is never given to a second name: a program may hold an address for hours. The table belongs to
 * one sandbox, so that no name is visible to another. */
#pragma once

#include "core/base/base.h"

#define INVENTED_NAMES_MAX 4096u

struct invented_names {
    char **names; /* in the order of their addresses */
    size_t n;
    uint32_t first;    /* address of names[0]; 0: EGRESS_ADDRESS_FIRST */
    uint32_t *buckets; /* index + 1 of the first name with this hash; 0: none */
    uint32_t *next;    /* index + 1 of the next name in the bucket of this one */
};

void invented_names_done(struct invented_names *t);
/* Forgets the names. Their addresses are not given again until the range is used up. */
void invented_names_reset(struct invented_names *t);
/* The address (host byte order) of a normalised name, which it gets now if it has none; 0: the
 * table is full. */
uint32_t invented_names_add(struct invented_names *t, const char *host);
/* The name of an address; NULL: the address was not given to one. Valid until the next reset. */
const char *invented_names_find(const struct invented_names *t, uint32_t address);
