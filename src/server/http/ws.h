/* ws.h - WebSockets (RFC 6455): a route whose handler calls http_answer_ws() turns its connection into one.
 *
 * What reached the handler has passed everything that a request passes: Host, Origin, the hook. Afterwards the request
 * is answered and gone; the socket is its own object, with its own bounds (struct http_limits), and lives until
 * on_closed:
 *
 * 1. on_closed comes exactly once, last, and from the loop, however the socket ends; it is freed when that returns.
 *    Until then every call below is allowed, and does nothing when the other side is gone.
 * 2. No callback runs inside a call that the owner makes: they all come from the loop.
 * 3. Memory is bounded by an owner who stops at WS_HIGH_WATER. A client that does not read fills its own queue, and is
 * not read from while that is full; one that takes nothing and says nothing is pinged, and closed when it does not
 *    answer.
 *
 * Extensions are never agreed to, so there is no compression. */
#pragma once

#include "server/http/http.h"

struct http_ws;

#define WS_HIGH_WATER (64 * 1024) /* bytes waiting at which a writer should stop */

/* Close codes. 4000 and up are ours: what the api says about sandboxes and keys. */
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
    void (*on_message)(void *arg, bool text, const char *data, size_t len); /* whole; text is valid UTF-8 */
    void (*on_room)(void *arg); /* ws_send had said false, and half of WS_HIGH_WATER is free again */
    void (*on_closed)(void *arg, unsigned code);
};

/* Answers with 101, or refuses what is no handshake (426, 400) and returns NULL: then the owner hears no more of it.
 * `protocols` are the subprotocols that are spoken here, NULL-terminated, or NULL; the first that the client offers too
 * is agreed on. `ops` is kept, not copied. */
struct http_ws *http_answer_ws(struct http_req *req, const char *const *protocols, const struct ws_ops *ops, void *arg);

/* One message of text; copied. False: WS_HIGH_WATER is reached, wait for on_room. */
bool ws_send(struct http_ws *ws, const void *text, size_t len);
size_t ws_room(const struct http_ws *ws); /* bytes until then; WS_HIGH_WATER when it is closing */
/* No more messages until it is lifted: the client is held with it. Those that were read with the last one, 4 KiB of
 * them at most, still come. */
void ws_set_reading_paused(struct http_ws *ws, bool hold);
/* Sends what waits, then says why (at most 123 bytes) and ends. Nothing is received any more. */
void ws_close(struct http_ws *ws, unsigned code, const char *reason);
