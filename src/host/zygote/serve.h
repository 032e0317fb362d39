/* serve.h - the life of a zygote: orders from the jailer, one after the other.
 *
 *     zygote_die_with_socket(sock, &err);
 *     what is to be loaded
 *     zygote_send_event(sock, ZYGOTE_READY, NULL);
 *     while (zygote_receive_order(sock, &task)) {
 *         before a fork, as the language needs it
 *         if ((rc = join_fork(&task.join, &err)) == 1)
 *             we are in a sandbox: speak on descriptor 3
 *         after it
 *         zygote_answer_order(sock, &task, rc, &err);
 *     } */
#pragma once

#include "host/zygote/join.h"
#include "host/zygote/zygote_protocol.h"

struct zygote_task {
    uint64_t token;
    struct native_template template;
    struct native_spec spec;
    struct join_request join;
};

/* Until it is said to be READY, the end of the socket ends this process and its group: whoever imports does not read.
 */
int zygote_die_with_socket(int sock, struct err *err);
void zygote_send_event(int sock, enum zygote_event_kind kind, const struct err *err);
/* Waits for the next order. False: the jailer is gone, or has no more use for this process. */
bool zygote_receive_order(int sock, struct zygote_task *ret);
void zygote_answer_order(int sock, struct zygote_task *task, int rc,
                         const struct err *err); /* closes its descriptors */
