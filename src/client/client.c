/* Each call of a function here makes one exchange and runs the loop until the exchange is over.
 * Data from the server is bounded: a JSON answer by ANSWER_MAX, a line of a stream by LINE_MAX;
 * only downloads have no bound.
 *
 * Error answers are separate from data: with a status of 400 or more the body is collected as JSON,
 * whatever the caller expects, and its code is looked up in our own table. */
#include "client/client.h"

#include "core/base/buf.h"
#include "client/login.h"
#include "client/oauth.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "remote/fetch/fetch.h"
#include "remote/fetch/wsock.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_MAX (64 * MIB)
#define LINE_MAX_BYTES (8 * MIB)
#define JSON_FLAGS (JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL) /* output of a program may contain any character */
#define SILENCE_MS 120000u /* streams have heartbeats; a longer silence is a lost connection */

struct client {
    struct ev *ev;
    struct fetch *fetch;
    char *url;
    char *socket;
    char *cacert;                    /* NULL: the system's authorities */
    struct client_exchange *current; /* the exchange that a function waits for */
    char *auth_header;               /* "Authorization: Bearer ..." or NULL */
    bool is_default;                 /* no setting names the server */
    uint32_t patience_ms;            /* 0: the usual */
};

struct client_exchange {
    struct client *c;
    struct fetch_call *call;
    struct buf text; /* a JSON answer, an error, or an incomplete line */
    int status;
    bool done, abandoned;
    struct err err;
    bool (*on_line)(void *arg, const json_t *line);
    bool (*on_data)(void *arg, const void *data, size_t len);
    ssize_t (*on_read)(void *arg, void *to, size_t room);
    void *arg;
};

/* --- server and credential --- */

static int client_check_url_and_key(const char *url, const char *key, struct err *err)
{
    if (!str_starts(url, "http://") && !str_starts(url, "https://"))
        return err_set(err, ERR_INVALID, "'%.120s': not a URL of a server; it must begin with http:// or https://",
                       url);
    for (const char *p = key; p && *p; p++)
        if (*p < '!' || *p > '~')
            return err_set(err, ERR_INVALID,
                           "the API key contains an invalid character; check COVE_API_KEY, or log in again");
    if (key && !fetch_is_safe(url))
        return err_set(err, ERR_INVALID, "%.120s: the API key would be sent without encryption; use https://", url);
    return 0;
}

/* Whether a socket is safe: the client sends its key to it, and another user can create a directory
 * below /tmp. So the socket must belong to this user or to root. The system's socket belongs to
 * coved's user, but its directory belongs to root. */
static bool client_may_use_socket(const char *path)
{
    struct stat st;

    if (access(path, W_OK) < 0 || stat(path, &st) < 0)
        return false;
    return str_eq(path, CLIENT_SOCKET_DEFAULT) || st.st_uid == geteuid() || st.st_uid == 0;
}

/* The socket path that `cove serve` uses: for root the system's, for other users their own before
 * the system's. The caller frees the result; NULL: none exists. */
static char *client_find_socket(void)
{
    const struct server_dirs_env env = { .euid = geteuid(),
                                         .home = getenv("HOME"),
                                         .xdg_state = getenv("XDG_STATE_HOME"),
                                         .xdg_runtime = getenv("XDG_RUNTIME_DIR") };
    char *sockets[SERVER_DIRS_SOCKETS_MAX], *found = NULL;
    size_t n = server_dirs_find_sockets(&env, sockets);

    for (size_t i = 0; i < n; i++) {
        if (!found && client_may_use_socket(sockets[i]))
            found = take_ptr(&sockets[i]);
        else
            free(sockets[i]);
    }
    return found;
}

/* Fills in what was not given from the file of `cove login`: the server and, if it is the same
 * server, the key and the authority. */
static int client_apply_login(struct ev *ev, const char **url, const char **key, const char **cacert, struct login *l,
                              struct err *err)
{
    if (*url && *key)
        return 0;
    if (login_read(l, err) < 0)
        return err->id == ERR_MISSING ? 0 : -1;
    if ((!*url || str_eq(*url, l->url)) && !*key && oauth_renew(ev, l, err) < 0)
        return -1;
    if (!*url)
        *url = l->url;
    if (!*key && str_eq(*url, l->url))
        *key = l->key;
    if (!*cacert && str_eq(*url, l->url))
        *cacert = l->cacert;
    return 0;
}

static const char *client_setting(const char *given, const char *variable)
{
    const char *text = given ? given : getenv(variable);

    return text && *text ? text : NULL;
}

int client_new(struct ev *ev, const struct client_settings *set, struct client **ret, struct err *err)
{
    bool nobody = set->key && !*set->key;
    const char *key = nobody ? NULL : client_setting(set->key, "COVE_API_KEY"),
               *url = client_setting(set->url, "COVE_URL");
    const char *cacert = client_setting(set->cacert, "COVE_CACERT");
    auto_free char *socket = set->socket ? str_dup(set->socket) : NULL;
    __attribute__((cleanup(login_done))) struct login kept = { 0 };
    struct err none = { 0 };

    if (!socket && !nobody && client_apply_login(ev, &url, &key, &cacert, &kept, &none) < 0) {
        *err = none;
        return -1;
    }
    if (!socket && !url)
        socket = client_find_socket();
    bool is_default = !url && !socket;
    if (!url)
        url = CLIENT_URL_DEFAULT;
    if (client_check_url_and_key(url, key, err) < 0)
        return -1;
    if (cacert && access(cacert, R_OK) < 0)
        return err_sys(err, ERR_INVALID, "certificate authority %.160s", cacert);
    struct client *c = mem_new(struct client);
    c->ev = ev;
    c->is_default = is_default;
    c->url = str_dup_n(url, strlen(url) - (str_ends(url, "/") ? 1 : 0));
    c->socket = take_ptr(&socket);
    c->cacert = cacert ? str_dup(cacert) : NULL;
    c->auth_header = key ? str_printf("Authorization: Bearer %s", key) : NULL;
    if (fetch_new(ev, &c->fetch, err) < 0) {
        client_free(c);
        return -1;
    }
    *ret = c;
    return 0;
}

void client_free(struct client *c)
{
    if (!c)
        return;
    fetch_free(c->fetch);
    free(c->url);
    free(c->socket);
    free(c->cacert);
    if (c->auth_header)
        explicit_bzero(c->auth_header, strlen(c->auth_header));
    free(c->auth_header);
    free(c);
}

const char *client_endpoint(const struct client *c)
{
    return c->socket ? c->socket : c->url;
}

bool client_is_default(const struct client *c)
{
    return c->is_default;
}

void client_set_patience(struct client *c, uint32_t ms)
{
    c->patience_ms = ms;
}

/* --- an exchange --- */

void client_interrupt(struct client *c)
{
    if (c->current)
        c->current->abandoned = c->current->done = true;
}

static void client_exchange_abandon(struct client_exchange *x)
{
    x->abandoned = x->done = true;
}

static void client_exchange_fail(struct client_exchange *x, enum err_id id, const char *what)
{
    err_set(&x->err, id, "%s", what);
    x->done = true;
}

static void client_on_head(void *arg, int status)
{
    struct client_exchange *x = arg;

    x->status = status;
}

static void client_read_lines(struct client_exchange *x)
{
    char *end;

    while (!x->done && (end = memchr(x->text.data, '\n', x->text.len))) {
        size_t len = (size_t)(end - x->text.data);
        json_t *line = len ? json_loadb(x->text.data, len, JSON_FLAGS, NULL) : NULL;

        if (len && !line) {
            client_exchange_fail(x, ERR_PROTOCOL, "the server sent a line that is not JSON");
            return;
        }
        bool more = !line || x->on_line(x->arg, line);
        json_decref(line);
        buf_drop(&x->text, len + 1);
        if (!more)
            client_exchange_abandon(x);
    }
}

static void client_on_data(void *arg, const void *data, size_t len)
{
    struct client_exchange *x = arg;
    bool plain = x->status < 400;

    if (x->done)
        return;
    if (plain && x->on_data) {
        if (!x->on_data(x->arg, data, len))
            client_exchange_abandon(x);
        return;
    }
    if (x->text.len + len > (plain && x->on_line ? LINE_MAX_BYTES : ANSWER_MAX)) {
        client_exchange_fail(x, ERR_PROTOCOL, "the server's answer is too large");
        return;
    }
    buf_add(&x->text, data, len);
    if (plain && x->on_line)
        client_read_lines(x);
}

static ssize_t client_on_read(void *arg, void *to, size_t room)
{
    struct client_exchange *x = arg;

    return x->on_read(x->arg, to, room);
}

static void client_on_fetch_done(void *arg, const struct err *err)
{
    struct client_exchange *x = arg;

    x->done = true;
    x->call = NULL;
    if (err && x->err.id == ERR_NONE && !x->abandoned) /* ignore how an abandoned connection ends */
        x->err = *err;
}

static const struct fetch_ops client_read_ops = { .on_head = client_on_head,
                                                  .on_data = client_on_data,
                                                  .on_done = client_on_fetch_done };
static const struct fetch_ops client_send_ops = {
    .on_head = client_on_head, .on_data = client_on_data, .on_done = client_on_fetch_done, .on_read = client_on_read
};

static int client_error_from_answer(const struct client_exchange *x, struct err *err)
{
    json_error_t ignored;
    json_t *body = json_loadb(x->text.data ? x->text.data : "", x->text.len, 0, &ignored);
    const json_t *e = json_object_get(body, "error");
    const char *code = json_string_value(json_object_get(e, "code"));
    const char *message = json_string_value(json_object_get(e, "message"));
    const char *request = json_string_value(json_object_get(e, "requestId"));

    if (!code || !message)
        err_set(err, ERR_PROTOCOL, "status %d without an error of cove; is there a cove server at %.120s?", x->status,
                client_endpoint(x->c));
    else if (err_by_code(code) == ERR_NONE)
        err_set(err, ERR_VERSION, "the server reports %.60s, which this version does not know: %.150s", code, message);
    else if (err_info(err_by_code(code))->http >= 500 && request)
        err_set(err, err_by_code(code), "%.180s (request %.40s)", message, request);
    else
        err_set(err, err_by_code(code), "%.230s", message);
    json_decref(body);
    return -1;
}

static int client_exchange_start(struct client *c, struct fetch_spec *spec, const char *path, const char *type,
                                 const char *accept, const struct fetch_ops *ops, struct client_exchange *x,
                                 struct err *err)
{
    auto_free char *url = str_printf("%s%s", c->socket ? "http://cove" : c->url, path);
    const char *headers[4] = { 0 };
    size_t n = 0;

    if (c->auth_header)
        headers[n++] = c->auth_header;
    if (type)
        headers[n++] = type;
    if (accept)
        headers[n++] = accept;
    spec->url = url;
    spec->unix_socket = c->socket;
    spec->cacert = c->cacert;
    spec->headers = headers;
    spec->connect_ms = c->patience_ms;
    spec->silence_ms = c->patience_ms ? c->patience_ms : SILENCE_MS;
    x->c = c;
    return fetch_start(c->fetch, spec, ops, x, &x->call, err);
}

/* Returns 0, or -1 with the error of a finished exchange. */
static int client_exchange_result(struct client_exchange *x, struct err *err)
{
    if (x->err.id == ERR_UNREACHABLE)
        err_set(&x->err, ERR_UNREACHABLE, "no server answers at %.150s", client_endpoint(x->c));
    if (x->err.id != ERR_NONE) {
        *err = x->err;
        return -1;
    }
    return !x->abandoned && x->status >= 400 ? client_error_from_answer(x, err) : 0;
}

static int client_exchange_run(struct client *c, struct fetch_spec *spec, const char *path, const char *type,
                               const char *accept, struct client_exchange *x, struct err *err)
{
    if (client_exchange_start(c, spec, path, type, accept, x->on_read ? &client_send_ops : &client_read_ops, x, err) <
        0)
        return -1;
    c->current = x;
    while (!x->done)
        ev_turn(c->ev, -1);
    c->current = NULL;
    if (x->call)
        fetch_cancel(x->call);
    ev_turn(c->ev, 0); /* runs deferred callbacks of the end */
    return client_exchange_result(x, err);
}

static int client_parse_json(struct client_exchange *x, json_t **ret, struct err *err)
{
    json_error_t where;

    *ret = NULL;
    if (x->text.len == 0)
        return 0;
    *ret = json_loadb(x->text.data, x->text.len, JSON_FLAGS, &where);
    return *ret ? 0 : err_set(err, ERR_PROTOCOL, "the server's answer is not JSON: %.120s", where.text);
}

int client_json(struct client *c, const char *method, const char *path, const char *body, json_t **ret, struct err *err)
{
    struct client_exchange x = { 0 };
    struct fetch_spec spec = { .method = method, .body = body, .body_len = body ? strlen(body) : 0 };
    json_t *answer = NULL;

    int bad = client_exchange_run(c, &spec, path, body ? "Content-Type: application/json" : NULL,
                                  "Accept: application/json", &x, err);
    if (!bad)
        bad = client_parse_json(&x, &answer, err);
    buf_done(&x.text);
    if (bad)
        return -1;
    if (ret)
        *ret = answer;
    else
        json_decref(answer);
    return 0;
}

int client_json_lines(struct client *c, const char *method, const char *path, const char *body,
                      bool (*on_line)(void *arg, const json_t *line), void *arg, struct err *err)
{
    struct client_exchange x = { .on_line = on_line, .arg = arg };
    struct fetch_spec spec = { .method = method, .body = body, .body_len = body ? strlen(body) : 0 };

    int bad = client_exchange_run(c, &spec, path, body ? "Content-Type: application/json" : NULL,
                                  "Accept: application/x-ndjson", &x, err);
    buf_done(&x.text);
    return bad;
}

int client_download(struct client *c, const char *path, bool (*on_bytes)(void *arg, const void *data, size_t len),
                    void *arg, struct err *err)
{
    struct client_exchange x = { .on_data = on_bytes, .arg = arg };
    struct fetch_spec spec = { 0 };

    err->id = ERR_NONE;
    int bad = client_exchange_run(c, &spec, path, NULL, NULL, &x, err);
    buf_done(&x.text);
    return bad || (x.abandoned && err->id != ERR_NONE) ? -1 : 0;
}

int client_upload(struct client *c, const char *path, const char *type, uint64_t size,
                  ssize_t (*on_bytes)(void *arg, void *to, size_t room), void *arg, json_t **ret, struct err *err)
{
    struct client_exchange x = { .on_read = on_bytes, .arg = arg };
    struct fetch_spec spec = { .method = "PUT", .upload = size };
    auto_free char *header = str_printf("Content-Type: %s", type);
    json_t *answer = NULL;

    int bad = client_exchange_run(c, &spec, path, header, "Accept: application/json", &x, err);
    if (!bad)
        bad = client_parse_json(&x, &answer, err);
    buf_done(&x.text);
    if (bad)
        return -1;
    if (ret)
        *ret = answer;
    else
        json_decref(answer);
    return 0;
}

/* --- asynchronous requests --- */

int client_fetch(struct client *c, const char *path, const struct fetch_spec *spec, const struct fetch_ops *ops,
                 void *arg, struct fetch_call **ret, struct err *err)
{
    auto_free char *url = str_printf("%s%s", c->socket ? "http://cove" : c->url, path);
    struct fetch_spec full = *spec;
    size_t n = 0;

    while (spec->headers && spec->headers[n])
        n++;
    const char **headers = mem_new_array(const char *, n + 2);
    for (size_t i = 0; i < n; i++)
        headers[i] = spec->headers[i];
    headers[n] = c->auth_header;
    headers[n + 1] = NULL;
    full.url = url;
    full.unix_socket = c->socket;
    full.cacert = c->cacert;
    full.headers = headers;
    int rc = fetch_start(c->fetch, &full, ops, arg, ret, err);
    free(headers);
    return rc;
}

struct client_async_request {
    struct client_exchange exchange;
    client_async_fn *fn;
    void *arg;
};

static void client_on_async_done(void *arg, const struct err *err)
{
    struct client_async_request *s = container_of((struct client_exchange *)arg, struct client_async_request, exchange);
    struct err why = { 0 };
    json_t *answer = NULL;

    client_on_fetch_done(&s->exchange, err);
    int bad = client_exchange_result(&s->exchange, &why);
    if (!bad)
        bad = client_parse_json(&s->exchange, &answer, &why);
    s->fn(s->arg, bad ? &why : NULL, answer); /* the callback may free the object */
    json_decref(answer);
}

int client_post(struct client *c, const char *path, const void *data, size_t len, client_async_fn *fn, void *arg,
                struct client_async_request **ret, struct err *err)
{
    static const struct fetch_ops ops = { .on_head = client_on_head,
                                          .on_data = client_on_data,
                                          .on_done = client_on_async_done };
    struct fetch_spec spec = { .method = "POST", .body = data, .body_len = len };
    struct client_async_request *s = mem_new(struct client_async_request);

    s->fn = fn;
    s->arg = arg;
    if (client_exchange_start(c, &spec, path, "Content-Type: application/octet-stream", "Accept: application/json",
                              &ops, &s->exchange, err) < 0) {
        free(s);
        return -1;
    }
    *ret = s;
    return 0;
}

void client_async_request_free(struct client_async_request *s)
{
    if (!s)
        return;
    if (s->exchange.call)
        fetch_cancel(s->exchange.call);
    buf_done(&s->exchange.text);
    free(s);
}

int client_websocket(struct client *c, const char *path, const struct wsock_ops *ops, void *arg, struct wsock **ret,
                     struct err *err)
{
    auto_free char *url = str_printf("%s%s", c->socket ? "http://cove" : c->url, path);
    const char *headers[] = { c->auth_header, NULL };
    struct wsock_spec spec = {
        .url = url, .unix_socket = c->socket, .cacert = c->cacert, .headers = headers, .protocol = "cove.v1"
    };
    struct client_exchange x = { .c = c };

    int rc = wsock_open(c->ev, &spec, ops, arg, ret, &x.status, &x.text, err);
    if (rc < 0 && x.status)
        (void)client_error_from_answer(&x, err);
    else if (rc < 0 && err->id == ERR_UNREACHABLE)
        err_set(err, ERR_UNREACHABLE, "no server answers at %.150s", client_endpoint(c));
    buf_done(&x.text);
    return rc;
}
