/* wskey.h - the proof in a WebSocket handshake that the server read the request. */
#pragma once

#include "core/base/base.h"

#define WSKEY_ACCEPT 29 /* 28 letters and the NUL */

/* Whether it is 16 bytes in base64. */
bool wskey_valid(const char *key);
/* Sec-WebSocket-Accept for this Sec-WebSocket-Key. */
void wskey_accept(const char *key, char ret[WSKEY_ACCEPT]);
