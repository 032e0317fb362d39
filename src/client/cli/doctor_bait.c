/* Objects that a leak would expose in a sandbox: a descriptor without CLOEXEC, a variable, a
 * listening port, an abstract socket, shared memory. All disappear with this process. If an object
 * cannot be created, the attack checks only the state of the sandbox. */
#include "client/cli/doctor_bait.h"

#include "core/base/fd.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DOCTOR_BAIT_FD 57 /* an otherwise unused descriptor number */
#define DOCTOR_BAIT_VARIABLE "COVE_DOCTOR_CANARY"

static void doctor_bait_open_port(struct doctor_bait *c)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t len = sizeof(at);

    c->port_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->port_fd >= 0 && bind(c->port_fd, (struct sockaddr *)&at, len) == 0 && listen(c->port_fd, 1) == 0 &&
        getsockname(c->port_fd, (struct sockaddr *)&at, &len) == 0)
        c->port = ntohs(at.sin_port);
}

static void doctor_bait_open_socket(struct doctor_bait *c)
{
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    int len = snprintf(c->socket, sizeof(c->socket), "cove-doctor-%d", (int)getpid());

    memcpy(at.sun_path + 1, c->socket, (size_t)len);
    c->socket_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (c->socket_fd >= 0 && bind(c->socket_fd, (struct sockaddr *)&at,
                                  (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)len)) == 0)
        (void)listen(c->socket_fd, 1);
}

void doctor_bait_create_memory(void)
{
    int shm = shmget(IPC_PRIVATE, 4096, 0600);

    if (shm < 0)
        return;
    (void)shmat(shm, NULL, SHM_RDONLY);
    (void)shmctl(shm, IPC_RMID, NULL); /* the segment exists until we detach */
}

void doctor_bait_create(struct doctor_bait *c)
{
    auto_fd int null = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (null >= 0 && fcntl(DOCTOR_BAIT_FD, F_GETFD) < 0)
        (void)dup2(null, DOCTOR_BAIT_FD);
    (void)setenv(DOCTOR_BAIT_VARIABLE, "1", 1);
    doctor_bait_open_port(c);
    doctor_bait_open_socket(c);
}

void doctor_bait_done(struct doctor_bait *c)
{
    fd_close(&c->port_fd);
    fd_close(&c->socket_fd);
}
