#include "core/wire/seccomp_listener.h"

#include "core/base/fd.h"
#include "core/wire/jail.h"

int seccomp_listener_send(int sock, const char *id, int listener, int sys)
{
    uint8_t packet[FRAME_HEADER + 128];
    struct jail_watch w = { .sys = sys };

    memcpy(w.id, id, sizeof(w.id));
    int len = jail_watch_encode(&w, packet + FRAME_HEADER, NULL);
    if (len < 0)
        return -1;
    frame_header(packet, &(struct frame){ .type = FRAME_J_WATCH, .len = (uint32_t)len });
    return fd_send(sock, packet, FRAME_HEADER + (size_t)len, &listener, listener >= 0 ? 1 : 0, 0) < 0 ? -1 : 0;
}
