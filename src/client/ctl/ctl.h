/* ctl.h - the verbs of `cove` that use a server: sandbox, exec, cp, logs, ps, key and others. */
#pragma once

/* argv[0] is the verb. Returns the exit status of the process. */
int ctl_main(int argc, char **argv);
