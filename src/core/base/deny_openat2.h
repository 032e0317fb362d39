/* deny_openat2.h - makes openat2 return ENOSYS for the programs of a sandbox. */
#pragma once

/* openat2 takes the mode of a new file in a struct, which a seccomp filter cannot read. So the
 * filter that PID 1 and its programs share cannot prevent openat2 from creating set-id files, as it
 * does for open, chmod and mknod. PID 1 needs the call; programs fall back when a kernel lacks it.
 * After this call, openat2 fails with ENOSYS in this process and its children. Returns -1 with
 * errno. */
int deny_openat2(void);
