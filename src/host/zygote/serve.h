/* serve.h - the main loop of a zygote: orders from the jailer, one after the other.
 *
 *     zygote_die_with_socket(sock, &err);
 *     load modules
 *     zygote_send_event(sock, ZYGOTE_READY, NULL);
 *     while (zygote_receive_order(sock, &task)) {
 *         prepare the fork, as the language needs it
 *         if ((rc = join_fork(&task.join, &err)) == 1)
 *             now in a sandbox: speak the protocol on descriptor 3
 *         clean up after the fork
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

/* Until READY is sent, the end of the socket kills this process and its group: a zygote that
 * imports modules does not read the socket. */
int zygote_die_with_socket(int sock, struct err *err);
void zygote_send_event(int sock, enum zygote_event_kind kind, const struct err *err);
/* Waits for the next order. False: the jailer is gone, or has ended this zygote. */
bool zygote_receive_order(int sock, struct zygote_task *ret);
/* Closes the descriptors of the task. */
void zygote_answer_order(int sock, struct zygote_task *task, int rc, const struct err *err);
