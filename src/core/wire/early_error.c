#include "core/wire/early_error.h"

#include "core/base/fd.h"
#include "core/wire/frame.h"
#include "core/wire/rt.h"

#include <stdio.h>

void early_error_send(int control, const struct err *err)
{
    uint8_t packet[FRAME_HEADER + 512];
    struct rt_error e = { .id = (uint32_t)err->id, .sys = err->sys };
    struct err ignored;

    (void)snprintf(e.msg, sizeof(e.msg), "%s", err->msg);
    int len = rt_error_encode(&e, packet + FRAME_HEADER, &ignored);
    if (len < 0)
        return;
    frame_header(packet, &(struct frame){ .type = FRAME_ERROR, .len = (uint32_t)len });
    (void)fd_send(control, packet, FRAME_HEADER + (size_t)len, NULL, 0, 0);
}
