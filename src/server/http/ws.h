/* ws.h - WebSockets (RFC 6455): a handler that calls http_answer_ws() turns its connection into a
 * WebSocket.
 *
 * The request has passed all checks of a request: Host, Origin, the hook. After the handshake the
 * request is answered and freed; the WebSocket is a separate object with its own limits (struct
 * http_limits) that lives until on_closed:
 *
 * 1. on_closed is called exactly once, as the last callback, from the event loop, however the
 *    WebSocket ends; the WebSocket is freed when on_closed returns. Until then every call below is
 *    allowed, and does nothing if the client is gone.
 * 2. No callback runs inside a call that the owner makes: all callbacks come from the event loop.
 * 3. Memory is bounded if the owner stops at WS_HIGH_WATER. A client that does not read fills its
 *    own queue, and nothing is read from it while the queue is full. A client that neither reads
 *    nor sends is pinged, and disconnected if it does not answer.
 *
 * Extensions are never negotiated, so there is no compression. */
#pragma once

#include "server/http/http.h"

struct http_ws;

#define WS_HIGH_WATER (64 * 1024) /* queued bytes at which a writer should stop */

/* Close codes. 4000 and above belong to cove: the API uses them for sandboxes and keys. */
enum ws_close_code {
    WS_NORMAL = 1000,
    WS_GOING_AWAY = 1001,
    WS_PROTOCOL = 1002,
    WS_UNSUPPORTED = 1003,
    WS_ABNORMAL = 1006, /* never sent: the connection broke */
    WS_POLICY = 1008,
    WS_TOO_BIG = 1009,
    WS_INTERNAL = 1011,
    WS_TRY_AGAIN = 1013,
};

struct ws_ops {
    /* A complete message; text is valid UTF-8. */
    void (*on_message)(void *arg, bool text, const char *data, size_t len);
    void (*on_room)(void *arg); /* ws_send() had returned false, and half of WS_HIGH_WATER is free again */
    void (*on_closed)(void *arg, unsigned code);
};

/* Answers with 101. A request that is not a valid handshake is refused (426, 400) and NULL is
 * returned: then no callback follows. `protocols` lists the supported subprotocols,
 * NULL-terminated, or is NULL; the first one that the client offers too is selected. `ops` is
 * borrowed, not copied. */
struct http_ws *http_answer_ws(struct http_req *req, const char *const *protocols, const struct ws_ops *ops, void *arg);

/* Sends one text message; copied. Returns false if WS_HIGH_WATER is reached: wait for on_room. */
bool ws_send(struct http_ws *ws, const void *text, size_t len);
size_t ws_room(const struct http_ws *ws); /* bytes until WS_HIGH_WATER is reached; WS_HIGH_WATER if it is closing */
/* While reading is paused, the client is slowed down and no more messages arrive, except those that
 * were read together with the last one, at most 4 KiB. */
void ws_set_reading_paused(struct http_ws *ws, bool hold);
/* Sends the queued messages and a close frame with the reason (at most 123 bytes), then closes.
 * Nothing more is received. */
void ws_close(struct http_ws *ws, unsigned code, const char *reason);
