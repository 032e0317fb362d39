/* serve.h - the life of a zygote: orders from the jailer, one after the other.
 *
 *     zygote_tie(sock, &err);
 *     what is to be loaded
 *     zygote_say(sock, ZYGOTE_READY, NULL);
 *     while (zygote_receive(sock, &task)) {
 *         before a fork, as the language needs it
 *         if ((rc = join_fork(&task.join, &err)) == 1)
 *             we are in a sandbox: speak on descriptor 3
 *         after it
 *         zygote_answer(sock, &task, rc, &err);
 *     } */
#pragma once

#include "zygote/join.h"
#include "zygote/orders.h"

struct zygote_task {
    uint64_t token;
    struct native_template t;
    struct native_spec spec;
    struct join join;
};

/* Until it is said to be READY, the end of the socket ends this process and its group: whoever imports does not read.
 */
int zygote_tie(int sock, struct err *err);
void zygote_say(int sock, enum zygote_note_kind kind, const struct err *err);
/* Waits for the next order. False: the jailer is gone, or has no more use for this process. */
bool zygote_receive(int sock, struct zygote_task *ret);
void zygote_answer(int sock, struct zygote_task *task, int rc, const struct err *err); /* closes its descriptors */
