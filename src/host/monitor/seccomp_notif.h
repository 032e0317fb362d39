/* seccomp_notif.h - refused system calls as the kernel hands them over: received, and answered with EPERM and nothing
 * else. */
#pragma once

#include "core/base/base.h"

#include <linux/seccomp.h>

bool seccomp_notif_supported(
    void); /* whether this kernel tells of them in a form that fits here; ask once, before all others */
/* The caller and we take turns, so one processor is as good as two, and spares the wake-up across. Linux 6.6. */
void seccomp_notif_set_sync_wakeup(int listener);
/* False: there is none, or its task died meanwhile. */
bool seccomp_notif_receive(int listener, struct seccomp_data *ret, uint64_t *ret_id);
/* What was taken must not be left without an answer. -1: the listener does not listen any more; errno says why. */
int seccomp_notif_refuse(int listener, uint64_t id);
