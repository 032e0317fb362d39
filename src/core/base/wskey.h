/* wskey.h - the Sec-WebSocket-Accept value, which proves that the server read the handshake
 * request. */
#pragma once

#include "core/base/base.h"

#define WSKEY_ACCEPT 29 /* 28 characters and the NUL */

/* Whether the key is 16 bytes in base64. */
bool wskey_valid(const char *key);
/* Sec-WebSocket-Accept for this Sec-WebSocket-Key. */
void wskey_accept(const char *key, char ret[WSKEY_ACCEPT]);
