/* seccomp_notif.h - receives denied system calls from the kernel and answers them with EPERM
 * only. */
#pragma once

#include "core/base/base.h"

#include <linux/seccomp.h>

/* Whether the notifications of this kernel fit into our buffers. Call it once, before the other
 * functions. */
bool seccomp_notif_supported(void);
/* Caller and monitor alternate, so sharing one processor costs nothing and avoids a cross-processor
 * wake-up. Linux 6.6. */
void seccomp_notif_set_sync_wakeup(int listener);
/* False: no call is pending, or its task died meanwhile. */
bool seccomp_notif_receive(int listener, struct seccomp_data *ret, uint64_t *ret_id);
/* A received call must be answered. -1: the listener does not work any more; errno is set. */
int seccomp_notif_refuse(int listener, uint64_t id);
