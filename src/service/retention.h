/* retention.h - removes rows and output of executions that are older or larger than they may be. */
#pragma once

#include "service/output_dir.h"
#include "store/store.h"

struct manager_gc {
    uint64_t executions, sandboxes, events, idem, scripts;
    uint64_t usage;                    /* usage rows that were removed or merged into another row */
    uint64_t output_bytes;             /* output of the removed executions */
    uint64_t stray_files, stray_bytes; /* output files of executions without a row */
};
typedef void manager_gc_fn(void *arg, const struct err *err, const struct manager_gc *removed);

struct retention;

struct retention *retention_new(struct store *store, struct output_dir *output_dir); /* both are borrowed */
void retention_free(struct retention *r);
DEFINE_AUTO(retention, retention_free);

/* Applies the retention to rows and output. With `strays`, also removes output files that belong to
 * no execution, which looks up every file. With keep->dry_run nothing is removed, only counted.
 * One run at a time: ERR_BUSY. */
void retention_run(struct retention *r, const struct store_retention *keep, bool strays, manager_gc_fn *done,
                   void *arg);
