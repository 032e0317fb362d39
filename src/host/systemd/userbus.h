/* userbus.h - asks the systemd of a plain user for a scope: a cgroup that is theirs, with processes moved into it.
 *
 * Pure parts first, so that they can be tested without a systemd. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#define USERBUS_CALL_MAX 1024
#define USERBUS_ANSWER_MAX 4096

/* The message StartTransientUnit for `scope` (a name that ends in ".scope"), delegated, holding these processes.
 * Returns its length in buf; 0 when it does not fit. */
size_t userbus_encode_scope_call(uint8_t buf[USERBUS_CALL_MAX], uint32_t serial, const char *scope, const pid_t *pids,
                                 size_t npids);

enum userbus_answer { USERBUS_OTHER, USERBUS_DONE, USERBUS_REFUSED, USERBUS_MALFORMED };

/* How much of a message is to be expected, from its first 16 bytes; 0 when they are no message that we could read. */
size_t userbus_message_length(const uint8_t head[16]);
/* Whether one whole message answers the call with this serial, and how. why gets the name of the error. */
enum userbus_answer userbus_decode_reply(const uint8_t *msg, size_t len, uint32_t serial, char why[128]);

/* Where a user's sockets lie: XDG_RUNTIME_DIR, or where systemd puts it. */
#define USERBUS_DIR_MAX 64
const char *userbus_runtime_dir(uid_t uid, char buf[USERBUS_DIR_MAX]);
bool userbus_is_available(const char *runtime_dir);

/* Carries it out, over the manager's own socket below runtime_dir or, where that is closed, over the user's bus. `uid`
 * is the caller's as the host sees it, and never root. Processes are moved when this has returned, or soon after. */
int userbus_start_scope(const char *runtime_dir, uid_t uid, const char *scope, const pid_t *pids, size_t npids,
                        struct err *err);
