/* host_facts.h - which facilities for sandboxes this host offers, as far as
 * visible without privileges. */
#pragma once

#include "core/base/base.h"

#define HOST_FACTS_MAX 8

struct host_fact {
    const char *name; /* as in JSON: "landlock" */
    bool good;        /* false: a run would be refused, or a limit not enforced */
    char detail[192];
};

/* Whether disk rates can be limited here; the only fact that no attack of the doctor tests. */
void host_facts_disk_rates(struct host_fact *f);
/* How an unprivileged user gets enforced limits. Pure function of the kernel release and of whether
 * systemd runs this host. */
const char *host_facts_cgroup_advice(const char *release, bool systemd);
const char *host_facts_cgroup_advice_here(void);
uint64_t host_facts_processors(void); /* that this process may use; at least 1 */
/* Returns the number of facts. */
size_t host_facts_collect(struct host_fact facts[HOST_FACTS_MAX]);
