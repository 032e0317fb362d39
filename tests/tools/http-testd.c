/* http-testd [NAME=VALUE...] - a server with one route of each kind, for tests and measurements of
 * src/server/http alone.
 *
 * Prints "port N" and serves until SIGTERM, which drains it. Values of struct http_limits are set by
 * their names, a Unix socket by unix=PATH, a limit of descriptors by nofile=N. GET /log returns the
 * calls of on_done. */
#include "tests/support/http_limits.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/jsonw.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "server/http/server.h"
#include "server/http/ws.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

static struct ev *loop;
static struct http_server *server;
static struct buf done_log;
static unsigned handled; /* number of calls of any handler */
static unsigned gone;
static uint64_t drain_ms = 2000;
static char test_user[] = "user-1";
static const char *served_file = "/etc/passwd";

static void text(struct http_req *req, const char *s)
{
    http_answer(req, 200, "text/plain", s, strlen(s));
}

static void hello(struct http_req *req, void *ctx UNUSED)
{
    handled++;
    http_answer(req, 200, "application/json", "{\"hello\":\"world\"}", 17);
}

/* Shows the request as the handler sees it, one line per field. */
static void add_pair(void *arg, const char *name, const char *value)
{
    buf_addf(arg, "query %s=%s\n", name, value);
}

static void show(struct http_req *req, void *ctx UNUSED)
{
    static const char *const names[] = { "Host", "X-Forwarded-For", "X-HTTP-Method-Override", "X-Test" };
    const struct http_peer *peer = http_peer(req);
    auto_buf out = { 0 };

    handled++;
    buf_addf(&out, "method %s\npattern %s\n", http_method(req), http_route(req)->pattern);
    for (const char *const *n = (const char *const[]){ "id", "path", NULL }; *n; n++)
        if (http_param(req, *n))
            buf_addf(&out, "%s %s\n", *n, http_param(req, *n));
    http_query_each(req, add_pair, &out);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (http_header(req, names[i]))
            buf_addf(&out, "%s: %s\n", names[i], http_header(req, names[i]));
    if (peer->is_unix)
        buf_addf(&out, "uid %u\n", peer->uid);
    else
        buf_addf(&out, "addr %s\n", peer->addr);
    http_answer(req, 200, "text/plain", out.data, out.len);
}

static void echo(struct http_req *req, void *ctx UNUSED)
{
    size_t len;
    const char *body = http_body(req, &len);

    handled++;
    http_answer(req, 200, "application/octet-stream", body, len);
}

/* answers after ?ms= */
struct later {
    struct http_req *req;
    struct ev_timer timer;
    struct later *prev, *next;
};

static struct later *laters;

static void answer_later(void *arg)
{
    struct later *l = arg;

    *(l->prev ? &l->prev->next : &laters) = l->next;
    if (l->next)
        l->next->prev = l->prev;
    ev_timer_clear(loop, &l->timer);
    text(l->req, "later\n");
    free(l);
}

static void on_gone(void *arg UNUSED)
{
    gone++;
}

static void slow(struct http_req *req, void *ctx UNUSED)
{
    struct later *l = mem_new(struct later);
    struct err err = { 0 };
    uint64_t ms;

    handled++;
    if (http_query_u64(req, "ms", 0, 60000, 10, &ms, &err) < 0) {
        http_answer_err(req, &err);
        free(l);
        return;
    }
    l->req = req;
    l->next = laters;
    if (l->next)
        l->next->prev = l;
    laters = l;
    if (http_query(req, "watch"))
        http_on_client_gone(req, on_gone, NULL);
    ev_timer_set(loop, &l->timer, ev_now(loop) + ms * NS_PER_MS, answer_later, l);
}

/* ?bytes=N as a stream, as fast as the client reads; ?break=1 aborts it after them, ?known=1
 * announces the length */
struct flow {
    struct http_req *req;
    uint64_t left;
    bool breaks;
};

static void flow_on(void *arg)
{
    static char block[65536];
    struct flow *f = arg;
    bool room = true;

    while (room && f->left > 0) {
        size_t n = (size_t)min_u64(f->left, sizeof(block));

        f->left -= n;
        room = http_stream_write(f->req, block, n);
    }
    if (f->left > 0)
        return;
    struct http_req *req = f->req;
    bool breaks = f->breaks;
    free(f);
    if (breaks)
        http_stream_break(req);
    else
        http_stream_end(req);
}

static void flow_gone(void *arg)
{
    struct flow *f = arg;
    struct http_req *req = f->req;

    gone++;
    free(f);
    http_stream_end(req);
}

static void flow(struct http_req *req, void *ctx UNUSED)
{
    struct flow *f = mem_new(struct flow);
    struct err err = { 0 };
    uint64_t bytes;

    handled++;
    if (http_query_u64(req, "bytes", 0, UINT64_MAX / 2, 0, &bytes, &err) < 0) {
        http_answer_err(req, &err);
        free(f);
        return;
    }
    *f = (struct flow){ req, bytes, http_query(req, "break") != NULL };
    http_answer_stream(req, 200, "application/octet-stream", http_query(req, "known") ? bytes : HTTP_UNTIL_END);
    http_on_room(req, flow_on, f);
    http_on_client_gone(req, flow_gone, f);
    flow_on(f);
}

/* A streamed body, counted; ?hold=MS takes 1000 bytes at a time with pauses; ?stop=N answers after
 * N bytes. */
struct upload {
    struct http_req *req;
    uint64_t bytes, hold_ms, stop;
    struct ev_timer timer;
};

static void upload_free(void *p)
{
    struct upload *u = p;

    ev_timer_clear(loop, &u->timer);
    free(u);
}

static void upload_answer(struct upload *u)
{
    char line[64];

    snprintf(line, sizeof(line), "bytes %" PRIu64 "\n", u->bytes);
    text(u->req, line);
}

static void upload_rested(void *arg)
{
    struct upload *u = arg;

    http_resume_body(u->req);
}

static size_t upload_data(void *arg, const void *data UNUSED, size_t len)
{
    struct upload *u = arg;
    size_t n = u->hold_ms ? min_size(len, 1000) : len;

    u->bytes += n;
    if (u->stop && u->bytes >= u->stop) {
        struct err err = { 0 };

        err_set(&err, ERR_DISK_FULL, "no room after %" PRIu64 " bytes", u->bytes);
        http_discard_body(u->req);
        http_answer_err(u->req, &err);
        return n;
    }
    if (n < len)
        ev_timer_set(loop, &u->timer, ev_now(loop) + u->hold_ms * NS_PER_MS, upload_rested, u);
    return n;
}

static void upload_end(void *arg)
{
    upload_answer(arg);
}

static void upload_fail(void *arg, const struct err *err)
{
    struct upload *u = arg;

    gone += err->id == ERR_CLIENT_GONE;
    http_answer_err(u->req, err);
}

static void upload(struct http_req *req, void *ctx UNUSED)
{
    static const struct http_reader reader = { upload_data, upload_end, upload_fail };
    struct upload *u = mem_new(struct upload);

    handled++;
    u->req = req;
    http_free_with_request(req, u, upload_free);
    http_query_u64(req, "hold", 0, 60000, 0, &u->hold_ms, NULL);
    http_query_u64(req, "stop", 0, UINT64_MAX, 0, &u->stop, NULL);
    http_read_body(req, &reader, u);
}

static void events(struct http_req *req, void *ctx UNUSED)
{
    handled++;
    http_answer_events(req);
    http_stream_event(req, "1", "note", "one\ntwo");
    http_stream_event(req, "2\nevent: forged", NULL, "three\r\n\r\nfour");
    http_stream_end(req);
}

static void lines(struct http_req *req, void *ctx UNUSED)
{
    handled++;
    http_answer_ndjson(req, 200);
    for (uint64_t i = 0; i < 3; i++) {
        auto_buf b = { 0 };
        struct jsonw w;

        jsonw_init(&w, &b, 0);
        jsonw_object(&w);
        jsonw_ku64(&w, "n", i);
        jsonw_end_object(&w);
        http_stream_ndjson(req, &b);
    }
    http_stream_end(req);
}

static void file(struct http_req *req, void *ctx UNUSED)
{
    int fd = open(served_file, O_RDONLY | O_CLOEXEC);
    struct stat st;
    char etag[64];

    handled++;
    if (fd < 0 || fstat(fd, &st) < 0)
        abort();
    http_set_filename(req, http_query(req, "name") ? http_query(req, "name") : "file");
    http_answer_file(req, "application/octet-stream", fd, (uint64_t)st.st_size,
                     http_etag((uint64_t)st.st_size, 7, etag));
}

static void header(struct http_req *req, void *ctx UNUSED)
{
    handled++;
    http_set_header(req, "X-Given", http_query(req, "value"));
    text(req, "ok\n");
}

static void fail(struct http_req *req, void *ctx UNUSED)
{
    struct err err = { 0 };

    handled++;
    if (http_query(req, "sys"))
        err_set(&err, ERR_SYS, "opening /secret/path: Permission denied");
    else
        err_set(&err, ERR_EXISTS, "there is a %s already", http_query(req, "what"));
    http_answer_err_with(req, &err, "{\"field\":\"name\"}");
}

/* A WebSocket that echoes messages, except: "flood N" (sends N bytes as fast as they are accepted),
 * "hold MS" (accepts no message for so long), "close CODE". */
struct socket {
    struct http_ws *ws;
    uint64_t left;
    struct ev_timer timer;
};

static unsigned sockets_closed, last_code;

static void socket_flow(void *arg)
{
    static char block[16384];
    struct socket *s = arg;
    bool room = true;

    memset(block, 'x', sizeof(block));
    while (room && s->left > 0) {
        size_t n = (size_t)min_u64(s->left, sizeof(block));

        s->left -= n;
        room = ws_send(s->ws, block, n);
    }
}

static void socket_thaw(void *arg)
{
    struct socket *s = arg;

    ws_set_reading_paused(s->ws, false);
}

static void socket_message(void *arg, bool is_text, const char *data, size_t len)
{
    struct socket *s = arg;
    auto_free char *word = str_dup_n(data, len);
    const char *p = word;
    uint64_t n;

    if (is_text && str_eat(&p, "flood ") && str_to_u64(p, UINT64_MAX / 2, &n)) {
        s->left += n;
        socket_flow(s);
    } else if (is_text && str_eat(&p, "hold ") && str_to_u64(p, 60000, &n)) {
        ws_set_reading_paused(s->ws, true);
        ev_timer_set(loop, &s->timer, ev_now(loop) + n * NS_PER_MS, socket_thaw, s);
    } else if (is_text && str_eat(&p, "close ") && str_to_u64(p, 4999, &n)) {
        ws_send(s->ws, "last words", 10);
        ws_close(s->ws, (unsigned)n, "as you wish");
    } else {
        ws_send(s->ws, data, len);
    }
}

static void socket_closed(void *arg, unsigned code)
{
    struct socket *s = arg;

    sockets_closed++;
    last_code = code;
    ev_timer_clear(loop, &s->timer);
    free(s);
}

static void web_socket(struct http_req *req, void *ctx UNUSED)
{
    static const struct ws_ops ops = { socket_message, socket_flow, socket_closed };
    static const char *const protocols[] = { "two", "one", NULL };
    struct socket *s = mem_new(struct socket);

    handled++;
    s->ws = http_answer_ws(req, protocols, &ops, s);
    if (!s->ws)
        free(s);
}

static void counts(struct http_req *req, void *ctx UNUSED)
{
    struct http_stats st;
    struct timespec cpu;
    char line[256];

    http_server_stats(server, &st);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    snprintf(line, sizeof(line),
             "handled %u\ngone %u\nopen %u\nactive %u\naccepted %" PRIu64 "\nrefused %" PRIu64 "\ncpu_ms %lld\n"
             "sockets %u\nclosed %u\nlast_code %u\n",
             handled, gone, st.open, st.active, st.accepted, st.refused_per_addr,
             (long long)cpu.tv_sec * 1000 + cpu.tv_nsec / 1000000, st.websockets, sockets_closed, last_code);
    text(req, line);
}

static void show_log(struct http_req *req, void *ctx UNUSED)
{
    http_answer(req, 200, "text/plain", done_log.data ? done_log.data : "", done_log.len);
    buf_clear(&done_log);
}

static const struct http_route routes[] = {
    { "GET", "/hello", hello },
    { "GET", "/show", show },
    { "GET", "/items/{id}", show },
    { "PUT", "/items/{id}", echo, HTTP_BODY_BUFFERED, 1000 },
    { "GET", "/items/special", show },
    { "GET", "/items/{id}/files/{path*}", show },
    { "POST", "/echo", echo, HTTP_BODY_BUFFERED },
    { "POST", "/json", echo, HTTP_BODY_BUFFERED, 0, "application/json" },
    { "GET", "/slow", slow },
    { "GET", "/stream", flow },
    { "PUT", "/upload", upload, HTTP_BODY_STREAMED },
    { "PUT", "/upload-small", upload, HTTP_BODY_STREAMED, 100000 },
    { "GET", "/events", events },
    { "GET", "/lines", lines },
    { "GET", "/file", file },
    { "GET", "/header", header },
    { "GET", "/fail", fail },
    { "GET", "/ws", web_socket },
    { "GET", "/counts", counts },
    { "GET", "/log", show_log },
    { 0 },
};

/* The hook: X-Deny answers immediately, X-Later: deny or pass answers some milliseconds later. */
struct pending {
    struct http_req *req;
    struct ev_timer timer;
    bool deny;
};

static void deny(struct http_req *req)
{
    struct err err = { 0 };

    err_set(&err, ERR_UNAUTHORIZED, "not you");
    http_answer_err(req, &err);
}

static void decide(void *arg)
{
    struct pending *p = arg;
    struct http_req *req = p->req;
    bool no = p->deny;

    free(p);
    if (no)
        deny(req);
    else
        http_pass_to_handler(req);
}

static bool on_request(struct http_req *req, void *ctx UNUSED)
{
    const char *later = http_header(req, "X-Later");

    http_set_user_data(req, test_user);
    if (http_header(req, "X-Deny")) {
        deny(req);
        return false;
    }
    if (!later)
        return true;
    struct pending *p = mem_new(struct pending);
    p->req = req;
    p->deny = str_eq(later, "deny");
    ev_timer_set(loop, &p->timer, ev_now(loop) + 30 * NS_PER_MS, decide, p);
    return false;
}

static void on_done(const struct http_request_summary *d, void *ctx UNUSED)
{
    if (done_log.len < 65536 && !str_eq(d->path, "/log"))
        buf_addf(&done_log, "%s %s %s %s %d %s in=%" PRIu64 " out=%" PRIu64 " user=%s\n", d->id, d->method, d->path,
                 d->route ? d->route->pattern : "-", d->status, d->fully_sent ? "whole" : "cut", d->bytes_in,
                 d->bytes_out, d->user_data ? (char *)d->user_data : "-");
}

static void stop(void *arg UNUSED)
{
    ev_stop(loop);
}

static void on_signal(void *arg UNUSED, int signo UNUSED)
{
    http_server_drain(server, drain_ms, stop, NULL);
}

static uint64_t number(const char *s)
{
    uint64_t n;

    if (!str_to_u64(s, UINT64_MAX, &n))
        abort();
    return n;
}

static void set(struct http_settings *st, const char **unix_path, const char *arg)
{
    struct http_limits *l = &st->limits;
    const char *v = strchr(arg, '=') + 1;
    struct rlimit few;

    if (str_starts(arg, "unix="))
        *unix_path = v;
    else if (str_starts(arg, "drain_ms="))
        drain_ms = number(v);
    else if (str_starts(arg, "file="))
        served_file = v;
    else if (str_starts(arg, "line_max="))
        l->line_max = number(v);
    else if (str_starts(arg, "head_max="))
        l->head_max = number(v);
    else if (str_starts(arg, "buffered_max="))
        l->buffered_max = number(v);
    else if (str_starts(arg, "conns_max="))
        l->conns_max = (unsigned)number(v);
    else if (str_starts(arg, "conns_per_addr="))
        l->conns_per_addr = (unsigned)number(v);
    else if (str_starts(arg, "head_ms="))
        l->head_ms = number(v);
    else if (str_starts(arg, "body_ms="))
        l->body_ms = number(v);
    else if (str_starts(arg, "idle_ms="))
        l->idle_ms = number(v);
    else if (str_starts(arg, "write_ms="))
        l->write_ms = number(v);
    else if (str_starts(arg, "ws_max="))
        l->ws_max = (unsigned)number(v);
    else if (str_starts(arg, "ws_per_addr="))
        l->ws_per_addr = (unsigned)number(v);
    else if (str_starts(arg, "ws_message_max="))
        l->ws_message_max = number(v);
    else if (str_starts(arg, "ws_ping_ms="))
        l->ws_ping_ms = number(v);
    else if (str_starts(arg, "ws_rate="))
        l->ws_frames_per_second = (unsigned)number(v);
    else if (str_starts(arg, "nofile=")) {
        few.rlim_cur = few.rlim_max = number(v);
        setrlimit(RLIMIT_NOFILE, &few);
    } else {
        abort();
    }
}

int main(int argc, char **argv)
{
    static const struct http_route *const tables[] = { routes, NULL };
    static const char *const hosts[] = { "cove.example", NULL };
    static const char *const origins[] = { "https://page.example", NULL };
    struct http_settings st = { .tables = (const struct http_tables[]){ { tables }, { 0 } },
                                .hosts = hosts,
                                .origins = origins };
    const char *unix_path = NULL;
    struct err err = { 0 };
    uint16_t port;
    sigset_t signals;

    st.on_request = on_request;
    st.on_done = on_done;
    st.limits = http_limits_for_tests();
    for (int i = 1; i < argc; i++)
        set(&st, &unix_path, argv[i]);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    if (ev_new(&loop, &err) < 0 || ev_signals(loop, &signals, on_signal, NULL, &err) < 0 ||
        http_server_new(loop, &st, &server, &err) < 0 || http_listen_tcp(server, "127.0.0.1:0", &port, &err) < 0 ||
        (unix_path && http_listen_unix(server, unix_path, 0666, &err) < 0)) {
        fprintf(stderr, "http-testd: %s\n", err.msg);
        return 1;
    }
    printf("port %u\n", port);
    fflush(stdout);
    ev_run(loop);
    http_server_free(server);
    while (laters) /* requests outlive their server until they are answered */
        answer_later(laters);
    ev_free(loop);
    buf_done(&done_log);
    return 0;
}
