/* doctor_rates.h - the file on a disk of this host with which `cove doctor` tries --io-read and
 * --io-write. */
#pragma once

#include "core/base/base.h"

#define DOCTOR_RATES_BYTES (384 * KIB)
#define DOCTOR_RATES_PER_SECOND (512 * KIB) /* so it takes three quarters of a second where it is held */
#define DOCTOR_RATES_FILE "rates"

struct doctor_rates {
    int dir; /* to be lent as the workspace; -1 when there is none */
    char path[64];
};

/* Makes it for this owner below `parent`. False when nothing can be tried there, and why: the
 * directory is on no disk, or on one that is as slow by itself as the limit would make it. */
bool doctor_rates_create(struct doctor_rates *r, const char *parent, uid_t uid, gid_t gid, char *why, size_t cap);
void doctor_rates_done(struct doctor_rates *r); /* removes it */
