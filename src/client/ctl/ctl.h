/* ctl.h - the verbs of `cove` that talk to a server: sandbox, exec, cp, logs, ps, key. */
#pragma once

/* argv[0] is the verb. Returns the exit status of the process. */
int ctl_main(int argc, char **argv);
