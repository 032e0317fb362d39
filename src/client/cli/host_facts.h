/* host_facts.h - what this host has of the things a sandbox is made of, as far as can be seen
 * without privilege. */
#pragma once

#include "core/base/base.h"

#define HOST_FACTS_MAX 8

struct host_fact {
    const char *name; /* as in JSON: "landlock" */
    bool good;        /* false: a run would be refused, or not limited */
    char detail[96];
};

/* Whether the speed of disks can be limited here; one of the facts, and the one that no attack of
 * the doctor shows. */
void host_facts_disk_rates(struct host_fact *f);
/* What would give a plain user limits that hold. Pure: the kernel's release, and whether systemd
 * runs this host. */
const char *host_facts_cgroup_advice(const char *release, bool systemd);
const char *host_facts_cgroup_advice_here(void);
/* Returns how many there are. */
size_t host_facts_collect(struct host_fact facts[HOST_FACTS_MAX]);
