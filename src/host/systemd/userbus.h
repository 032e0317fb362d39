/* userbus.h - asks the systemd of an unprivileged user for a scope: a cgroup that the user owns,
 * with processes moved into it. The pure functions come first, so that they can be tested without a
 * systemd. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"

#define USERBUS_CALL_MAX 1024
#define USERBUS_ANSWER_MAX 4096

/* Encodes StartTransientUnit for `scope` (a name that ends in ".scope"), delegated, with these
 * processes. Returns its length in buf; 0 if it does not fit. */
size_t userbus_encode_scope_call(uint8_t buf[USERBUS_CALL_MAX], uint32_t serial, const char *scope, const pid_t *pids,
                                 size_t npids);

enum userbus_answer { USERBUS_OTHER, USERBUS_DONE, USERBUS_REFUSED, USERBUS_MALFORMED };

/* The length of a message, from its first 16 bytes; 0 if they are not a message that we can
 * read. */
size_t userbus_message_length(const uint8_t head[16]);
/* Whether one complete message answers the call with this serial, and how. `why` receives the name
 * of the error. */
enum userbus_answer userbus_decode_reply(const uint8_t *msg, size_t len, uint32_t serial, char why[128]);

/* The directory of a user's sockets: XDG_RUNTIME_DIR, or systemd's default. */
#define USERBUS_DIR_MAX 64
const char *userbus_runtime_dir(uid_t uid, char buf[USERBUS_DIR_MAX]);
bool userbus_is_available(const char *runtime_dir);

/* Makes the call over the manager's own socket below runtime_dir or, if that is closed, over the
 * user's bus. `uid` is the caller's uid on the host, never 0. The processes are moved when this
 * returns, or soon after. */
int userbus_start_scope(const char *runtime_dir, uid_t uid, const char *scope, const pid_t *pids, size_t npids,
                        struct err *err);
