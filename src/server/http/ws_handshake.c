/* Upgrades a request to a WebSocket: the checks of the handshake, and the transfer of the
 * connection.
 *
 * The daemon sends the 101 and passes on the descriptor. It would keep its connection object, with
 * its memory, until it is informed that the socket is closed. So the WebSocket uses a duplicate of
 * the descriptor, and the daemon is informed at once: it closes its own copy, which the client does
 * not notice, and an idle WebSocket costs only a few kilobytes (ws.c). */
#include "server/http/mhd_callbacks.h"
#include "core/base/wskey.h"

#include "core/base/str.h"

#include <assert.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <strings.h>
#include <sys/socket.h>

/* Whether a comma-separated header contains this word. */
static bool header_list_has_word(const char *header, const char *word)
{
    size_t n = strlen(word);

    for (const char *p = header; p && *p; p += strcspn(p, ",")) {
        p += strspn(p, ", \t");
        if (strncasecmp(p, word, n) == 0 && (p[n] == '\0' || strchr(", \t", p[n])))
            return true;
    }
    return false;
}

static int ws_handshake_check(struct http_req *req, struct err *err)
{
    const char *version = http_header(req, "Sec-WebSocket-Version"), *key = http_header(req, "Sec-WebSocket-Key");

    if (req->is_head || req->is_http10 || !header_list_has_word(http_header(req, "Upgrade"), "websocket") ||
        !header_list_has_word(http_header(req, "Connection"), "upgrade"))
        return err_set(err, ERR_HTTP_UPGRADE, "%s is a WebSocket, but the request does not ask for an upgrade",
                       req->match.route->pattern);
    /* A client that intends to speak WebSocket may send frames before the answer: they must not be
     * read as a request. */
    req->close_after_answer = true;
    if (!version || !str_eq(version, "13"))
        return err_set(err, ERR_HTTP_UPGRADE, "only version 13 of the WebSocket protocol is supported");
    if (!key || !wskey_valid(key))
        return err_set(err, ERR_HTTP_MALFORMED, "Sec-WebSocket-Key is not 16 bytes in base64");
    if (req->s->draining)
        return err_set(err, ERR_BUSY, "the server is stopping; try again when it has restarted");
    return ws_check_capacity(req->s, req->conn, err);
}

struct http_ws *http_answer_ws(struct http_req *req, const char *const *protocols, const struct ws_ops *ops, void *arg)
{
    const char *offered = http_header(req, "Sec-WebSocket-Protocol");
    char proof[WSKEY_ACCEPT];
    struct err err = { 0 };

    if (!req->conn)
        err_set(&err, ERR_CLIENT_GONE, "the client disconnected");
    if (!req->conn || ws_handshake_check(req, &err) < 0) {
        if (err.id == ERR_HTTP_UPGRADE) {
            http_set_header(req, "Upgrade", "websocket");
            http_set_header(req, "Sec-WebSocket-Version", "13");
        }
        http_answer_err(req, &err);
        return NULL;
    }
    wskey_accept(http_header(req, "Sec-WebSocket-Key"), proof);
    http_set_header(req, "Upgrade", "websocket");
    http_set_header(req, "Sec-WebSocket-Accept", proof);
    for (size_t i = 0; offered && protocols && protocols[i]; i++)
        if (header_list_has_word(offered, protocols[i])) {
            http_set_header(req, "Sec-WebSocket-Protocol", protocols[i]);
            break;
        }
    struct http_ws *ws = ws_new(req->s, req->conn, ops, arg);
    req->close_after_answer = false;
    http_answer_upgrade(req, ws);
    return ws;
}

static void ws_handshake_on_upgrade(void *cls, struct MHD_Connection *mhd, void *req_cls UNUSED, const char *early,
                                    size_t n, MHD_socket fd, struct MHD_UpgradeResponseHandle *handle)
{
    struct http_req *req = cls;
    struct http_conn *c = http_conn_of_mhd(mhd);
    struct http_server *s = req->s;
    int yes = 1, mine = fcntl(fd, F_DUPFD_CLOEXEC, 3);

    http_conn_detach_socket(c);
    if (!c->peer.is_unix)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    ws_attach_fd(take_ptr(&req->ws), mine, early, n);
    MHD_upgrade_action(handle, MHD_UPGRADE_ACTION_CLOSE);
    http_server_schedule_run(s);
}

struct MHD_Response *ws_handshake_response(struct http_req *req)
{
    return MHD_create_response_for_upgrade(ws_handshake_on_upgrade, req);
}
