/* client.h - our own REST interface, from the other side.
 *
 * Each function makes one request and returns when it is answered, turning the loop meanwhile: timers, signals and
 * other calls go on. An error answer of the server becomes an err with the server's code, so that a program on this
 * side can branch on it and prints the same cause and fix. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/server_dirs.h"
#include "core/ev/ev.h"

#include <jansson.h>

#define CLIENT_URL_DEFAULT "http://127.0.0.1:8700"
#define CLIENT_SOCKET_DEFAULT SERVER_DIRS_SYSTEM_RUN "/" SERVER_DIRS_API_SOCKET

/* Where and as whom. NULL is "not said": then COVE_URL, COVE_API_KEY and COVE_CACERT are asked, then what `cove login`
 * kept, then the socket of a server on this machine, which knows its owner without a key. */
struct client_settings {
    const char *url;
    const char *key; /* "": none, whatever is kept */
    const char *socket;
    const char *cacert; /* PEM file: who may have signed the server's certificate, instead of those of this machine */
};

struct client;

int client_new(struct ev *ev, const struct client_settings *set, struct client **ret, struct err *err);
void client_free(struct client *c);
DEFINE_AUTO(client, client_free);
/* Where it goes: the URL, or the path of the socket. For messages. */
const char *client_endpoint(const struct client *c);

/* For a callback of the loop: the function that waits returns as if the caller had left the answer. */
void client_interrupt(struct client *c);

/* Path segments and query values from outside go through fetch_escape() first. Body: JSON text, or NULL for none. *ret
 * is the answer's JSON, or NULL when it had none; the caller frees it. */
int client_json(struct client *c, const char *method, const char *path, const char *body, json_t **ret,
                struct err *err);

/* An answer in lines of JSON, each handed over as it comes (borrowed). When on_line returns false the answer is left,
 * and that is no error. */
int client_json_lines(struct client *c, const char *method, const char *path, const char *body,
                      bool (*on_line)(void *arg, const json_t *line), void *arg, struct err *err);

/* A request beside the one that a function waits for: it goes on while the loop turns. on_done once, with the answer
 * (borrowed, may be NULL) or an error; never after client_async_request_free, which gives the request up. The data is
 * copied. */
struct client_async_request;
typedef void client_async_fn(void *arg, const struct err *err, const json_t *answer);
int client_post(struct client *c, const char *path, const void *data, size_t len, client_async_fn *on_done, void *arg,
                struct client_async_request **ret, struct err *err);
void client_async_request_free(struct client_async_request *s);

/* A WebSocket at this path (remote/fetch/wsock.h), open when this returns. A refusal becomes an err like any other. */
struct wsock;
struct wsock_ops;
int client_websocket(struct client *c, const char *path, const struct wsock_ops *ops, void *arg, struct wsock **ret,
                     struct err *err);

/* Bytes. on_data returns false when it could not put them anywhere and *err is set. */
int client_download(struct client *c, const char *path, bool (*on_data)(void *arg, const void *data, size_t len),
                    void *arg, struct err *err);
/* on_read as in fetch.h, without FETCH_LATER; size may be FETCH_UNTIL_END. */
int client_upload(struct client *c, const char *path, const char *type, uint64_t size,
                  ssize_t (*on_read)(void *arg, void *to, size_t room), void *arg, json_t **ret, struct err *err);
