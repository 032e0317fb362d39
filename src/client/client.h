/* client.h - a client of our own REST interface.
 *
 * Each function makes one request and returns when it is answered. It runs the loop meanwhile, so
 * timers, signals and other calls continue. An error answer of the server becomes an err with the
 * server's code, so that the caller can branch on it and prints the same cause and fix. */
#pragma once

#include "core/base/base.h"
#include "core/base/err.h"
#include "core/base/server_dirs.h"
#include "core/ev/ev.h"

#include <jansson.h>

#define CLIENT_URL_DEFAULT "http://127.0.0.1:8700"
#define CLIENT_SOCKET_DEFAULT SERVER_DIRS_SYSTEM_RUN "/" SERVER_DIRS_API_SOCKET

/* Server and credential. NULL is "not given": then COVE_URL, COVE_API_KEY and COVE_CACERT are used,
 * then the file of `cove login`, then the socket of a server on this machine, which recognizes its
 * owner without a key. */
struct client_settings {
    const char *url;
    const char *key; /* "": send none, even if one is stored */
    const char *socket;
    const char *cacert; /* PEM file with the certificate authority to trust instead of the system's authorities */
};

struct client;

int client_new(struct ev *ev, const struct client_settings *set, struct client **ret, struct err *err);
void client_free(struct client *c);
DEFINE_AUTO(client, client_free);
/* The URL, or the path of the socket; for messages. */
const char *client_endpoint(const struct client *c);

/* Whether the server is only the default address: nothing names one, and none runs on this
 * machine. */
bool client_is_default(const struct client *c);
/* Limits how long a request waits for the server, to connect and for each next byte; without it,
 * 10 s and two minutes. */
void client_set_patience(struct client *c, uint32_t ms);

/* To be called from a callback of the loop: the waiting function returns as if the caller had
 * abandoned the answer. */
void client_interrupt(struct client *c);

/* Escape path segments and query values from outside with fetch_escape() first. body: JSON text, or
 * NULL for none. *ret is the JSON of the answer, or NULL if it has none; the caller frees it. */
int client_json(struct client *c, const char *method, const char *path, const char *body, json_t **ret,
                struct err *err);

/* For an answer in lines of JSON: calls on_line with each line (borrowed) as it arrives. If on_line
 * returns false, the rest of the answer is abandoned, which is not an error. */
int client_json_lines(struct client *c, const char *method, const char *path, const char *body,
                      bool (*on_line)(void *arg, const json_t *line), void *arg, struct err *err);

/* A request in parallel to the one that a function waits for; it progresses while the loop runs.
 * on_done is called once, with the answer (borrowed, may be NULL) or an error, and never after
 * client_async_request_free, which cancels the request. The data is copied. */
struct client_async_request;
typedef void client_async_fn(void *arg, const struct err *err, const json_t *answer);
int client_post(struct client *c, const char *path, const void *data, size_t len, client_async_fn *on_done, void *arg,
                struct client_async_request **ret, struct err *err);
void client_async_request_free(struct client_async_request *s);

/* A request whose answer the caller reads itself, with the callbacks of remote/fetch/fetch.h.
 * `spec` names method, headers, body and times; the client adds server, credential and
 * authority. */
struct fetch_call;
struct fetch_ops;
struct fetch_spec;
int client_fetch(struct client *c, const char *path, const struct fetch_spec *spec, const struct fetch_ops *ops,
                 void *arg, struct fetch_call **ret, struct err *err);

/* Opens a WebSocket at this path (remote/fetch/wsock.h); it is open on return. A refusal becomes an
 * err like any other. */
struct wsock;
struct wsock_ops;
int client_websocket(struct client *c, const char *path, const struct wsock_ops *ops, void *arg, struct wsock **ret,
                     struct err *err);

/* Downloads bytes. on_data returns false if it cannot store them; it has then set *err. */
int client_download(struct client *c, const char *path, bool (*on_data)(void *arg, const void *data, size_t len),
                    void *arg, struct err *err);
/* Uploads bytes. on_read is as in fetch.h, without FETCH_LATER; size may be FETCH_UNTIL_END. */
int client_upload(struct client *c, const char *path, const char *type, uint64_t size,
                  ssize_t (*on_read)(void *arg, void *to, size_t room), void *arg, json_t **ret, struct err *err);
