/* doctor_rates.h - a file on a disk of this host with which `cove doctor` tests
 * --io-read and --io-write. */
#pragma once

#include "core/base/base.h"

#define DOCTOR_RATES_BYTES (384 * KIB)
#define DOCTOR_RATES_PER_SECOND (512 * KIB) /* the test takes 0.75 s if the limit holds */
#define DOCTOR_RATES_FILE "rates"

struct doctor_rates {
    int dir; /* mounted as the workspace; -1: none */
    char path[64];
};

/* Creates the file below `parent` for this owner. Returns false, with the reason in `why`, if
 * the test is not possible there: the directory is not on a disk, or the disk is already as slow
 * as the limit. */
bool doctor_rates_create(struct doctor_rates *r, const char *parent, uid_t uid, gid_t gid, char *why, size_t cap);
void doctor_rates_done(struct doctor_rates *r); /* removes the file and its directory */
