/* rates.h - the file on a disk of this host with which `cove doctor` tries --io-read and --io-write. */
#pragma once

#include "base/base.h"

#define RATES_BYTES (384 * KIB)
#define RATES_PER_SECOND (512 * KIB) /* so it takes three quarters of a second where it is held */
#define RATES_FILE "rates"

struct rates {
    int dir; /* to be lent as the workspace; -1 when there is none */
    char path[64];
};

/* Makes it for this owner below `parent`. False when nothing can be tried there, and why: the directory is on no disk,
 * or on one that is as slow by itself as the limit would make it. */
bool rates_plant(struct rates *r, const char *parent, uid_t uid, gid_t gid, char *why, size_t cap);
void rates_done(struct rates *r); /* removes it */
