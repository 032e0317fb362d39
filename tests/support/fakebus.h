/* fakebus.h - the other end of src/host/systemd: enough of a user's systemd to be asked for a scope. */
#pragma once

#include "core/base/base.h"

#define FAKEBUS_ANSWER_MAX 256
enum { FAKEBUS_RETURN = 2, FAKEBUS_ERROR = 3, FAKEBUS_SIGNAL = 4 };

/* A message of this kind that answers call `serial`; errors carry a name. Returns its length. */
size_t fakebus_answer(uint8_t buf[FAKEBUS_ANSWER_MAX], uint8_t kind, uint8_t serial, const char *error);

/* A socket dir/name to accept visitors from; -1 when it cannot be made. */
int fakebus_listen(const char *dir, const char *name);
/* The handshake with a visitor that says it is uid 1000. False when it says anything else, or is not let in. */
bool fakebus_greet(int fd, bool let_in);
/* The next call of the visitor; 0 when it has gone. */
size_t fakebus_read_call(int fd, uint8_t *msg, size_t cap);
