/* fakebus.h - a fake of the peer of src/host/systemd: enough of a user's systemd to request a scope
 * from. */
#pragma once

#include "core/base/base.h"

#define FAKEBUS_ANSWER_MAX 256
enum { FAKEBUS_RETURN = 2, FAKEBUS_ERROR = 3, FAKEBUS_SIGNAL = 4 };

/* Writes a message of this kind that answers call `serial`; errors carry a name. Returns its
 * length. */
size_t fakebus_answer(uint8_t buf[FAKEBUS_ANSWER_MAX], uint8_t kind, uint8_t serial, const char *error);

/* Listens on a socket dir/name; -1 on failure. */
int fakebus_listen(const char *dir, const char *name);
/* The handshake with a client that claims uid 1000. False if it sends anything else, or is
 * refused. */
bool fakebus_greet(int fd, bool let_in);
/* The next call of the client; 0 when it has disconnected. */
size_t fakebus_read_call(int fd, uint8_t *msg, size_t cap);
