/* recovery.h - a new server reconciles the live rows of the store with the sandboxes of the
 * jailer. */
#pragma once

#include "core/base/base.h"

struct output_dir;
struct recovery;
struct sandbox;
struct sandbox_services;

/* Both are borrowed; services must be complete when recovery_start() is called. */
struct recovery *recovery_new(struct sandbox_services *services, struct output_dir *output_dir);
void recovery_free(struct recovery *r);
DEFINE_AUTO(recovery, recovery_free);

void recovery_start(struct recovery *r);           /* begins to read the store */
void recovery_on_connected(struct recovery *r);    /* the jailer is connected */
bool recovery_is_loaded(const struct recovery *r); /* all live rows of the store are loaded */
/* Whether sandboxes can be created. If not, *ret_why says why. */
bool recovery_is_ready(const struct recovery *r, const char **ret_why);
void recovery_sandbox_ready(struct recovery *r, struct sandbox *sb); /* its handle is ready */
void recovery_sandbox_resolved(struct recovery *r);                  /* it was adopted or has ended */
