/* deny_openat2.h - system calls that programs of a sandbox do not get to know. */
#pragma once

/* openat2 takes the mode of a new file behind a pointer, so the filter that PID 1 and its programs share cannot keep it
 * from making set-id files, as it does for open, chmod and mknod. PID 1 needs the call; programs know what to do when a
 * kernel does not have it. From here on this process and its children get ENOSYS. -1 + errno. */
int deny_openat2(void);
