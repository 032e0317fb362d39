/* registry.h - the table of live sandboxes, and the CPUs that they are pinned to.
 *
 * Only live sandboxes are in memory; ended ones are in the store. A sandbox enters the table when
 * its creation begins or when it is loaded, and leaves it when its end is committed, so for any id
 * the table and the store together give one answer. */
#pragma once

#include "core/base/base.h"

struct registry;
struct sandbox;

struct registry *registry_new(void);
void registry_free(struct registry *r); /* the table is empty */
DEFINE_AUTO(registry, registry_free);

struct sandbox *registry_find(const struct registry *r, const char *owner, const char *id);
void registry_add(struct registry *r, struct sandbox *sb);
void registry_remove(struct registry *r, struct sandbox *sb); /* may call on_empty */
void registry_rename(struct registry *r, struct sandbox *sb, const char *id);
size_t registry_count(const struct registry *r);
/* Called when the last sandbox is removed; NULL: nothing is called. */
void registry_set_on_empty(struct registry *r, void (*on_empty)(void *arg), void *arg);

/* The sandbox after sb, in no particular order; NULL: the first, or no more. No sandbox may be
 * added or removed meanwhile. */
struct sandbox *registry_next(const struct registry *r, const struct sandbox *sb);
/* All sandboxes, then NULL, for loops that end sandboxes: ending one may free it, but no other. The
 * caller frees the array. */
struct sandbox **registry_snapshot(const struct registry *r);

/* Chooses as many CPUs as the CPU limit needs, from those in `within` (0: all that the process may
 * use), with the fewest sandboxes pinned to them. A bit per CPU; 0: none can be chosen. */
uint64_t registry_choose_cpus(const struct registry *r, uint64_t millis, uint64_t within);
/* Call once: counts the sandbox on these CPUs until it is removed. */
void registry_pin_cpus(struct registry *r, struct sandbox *sb, uint64_t cpus);
