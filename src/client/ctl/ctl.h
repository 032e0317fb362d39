/* ctl.h - the verbs of `cove` that use a server or kept sandboxes: ls, exec, cp, logs, key and
 * others. */
#pragma once

#include "client/cli/kept_sandboxes.h"

/* argv[0] is the verb. Returns the exit status of the process. */
int ctl_main(int argc, char **argv, const struct kept_access *kept);
