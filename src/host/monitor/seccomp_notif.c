/* The kernel may fill in larger structs than those of our headers, so the buffers have spare space,
 * and seccomp_notif_supported checks that it suffices. */
#include "host/monitor/seccomp_notif.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

union seccomp_notif_call {
    struct seccomp_notif s;
    uint8_t room[512];
};

union seccomp_notif_answer {
    struct seccomp_notif_resp s;
    uint8_t room[512];
};

bool seccomp_notif_supported(void)
{
    struct seccomp_notif_sizes sizes = { 0 };

    return syscall(SYS_seccomp, SECCOMP_GET_NOTIF_SIZES, 0, &sizes) == 0 &&
           sizes.seccomp_notif <= sizeof(union seccomp_notif_call) &&
           sizes.seccomp_notif_resp <= sizeof(union seccomp_notif_answer);
}

void seccomp_notif_set_sync_wakeup(int listener)
{
    (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
}

bool seccomp_notif_receive(int listener, struct seccomp_data *ret, uint64_t *ret_id)
{
    union seccomp_notif_call call = { .room = { 0 } };

    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &call) < 0)
        return false;
    *ret = call.s.data;
    *ret_id = call.s.id;
    return true;
}

int seccomp_notif_refuse(int listener, uint64_t id)
{
    union seccomp_notif_answer answer = { .room = { 0 } };

    answer.s.id = id;
    answer.s.error = -EPERM;
    for (int tries = 0; tries < 3; tries++)
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer) == 0 || errno == ENOENT)
            return 0; /* ENOENT: the task died meanwhile */
    return -1;
}
