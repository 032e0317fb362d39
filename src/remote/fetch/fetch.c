/* libcurl reports the descriptors and the timeout that it waits for, and the loop waits for
 * them: its multi_socket interface.
 *
 * Invariants:
 * 1. libcurl is never entered recursively: requests of our callbacks (start, cancel, hold, the end
 *    of a call) are recorded and carried out when libcurl has returned.
 * 2. A finished call is freed by ev_defer, after on_done, so on_done may start another call or
 *    free the owner. */
#include "remote/fetch/fetch.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <curl/curl.h>

#define CONNECT_MS 10000u
#define HEADERS_MAX 200u /* lines in the response head */
#define HEAD_MAX (64 * KIB)

struct fetch_socket {
    struct fetch *f;
    struct ev_io io;
};

struct fetch {
    struct ev *ev;
    CURLM *multi;
    struct ev_timer timer;
    struct ev_defer pending; /* runs the requests that callbacks made inside libcurl */
    struct fetch_call *calls;
    int depth; /* greater than 0 inside libcurl */
};

struct fetch_call {
    struct fetch_call *next;
    struct fetch *f;
    CURL *easy;
    struct curl_slist *headers;
    const struct fetch_ops *ops;
    void *arg;
    char *body;
    char error_text[CURL_ERROR_SIZE];
    size_t head_lines, head_bytes;
    bool head_reported, download_held, upload_paused, is_finished, cancelled;
    bool pause_changed; /* libcurl does not have the wanted pause state yet */
    bool is_queued;     /* libcurl does not have the call yet: a callback of libcurl started it */
    CURLcode result;
    bool (*may_connect)(void *arg, const struct sockaddr *addr);
};

static void fetch_process_pending(void *arg);

static void fetch_process_later(struct fetch *f)
{
    ev_defer(f->ev, &f->pending, fetch_process_pending, f);
}

/* --- the end of a call --- */

static void fetch_call_free(struct fetch_call *c)
{
    list_remove(&c->f->calls, c);
    curl_multi_remove_handle(c->f->multi, c->easy);
    curl_easy_cleanup(c->easy);
    curl_slist_free_all(c->headers);
    free(c->body);
    free(c);
}

static int fetch_call_error(const struct fetch_call *c, struct err *err)
{
    const char *why = c->error_text[0] ? c->error_text : curl_easy_strerror(c->result);
    curl_off_t connected = 0;

    curl_easy_getinfo(c->easy, CURLINFO_CONNECT_TIME_T, &connected);
    switch (c->result) {
    case CURLE_COULDNT_CONNECT:
    case CURLE_COULDNT_RESOLVE_HOST:
        return err_set(err, ERR_UNREACHABLE, "%.200s", why);
    case CURLE_OPERATION_TIMEDOUT:
        return err_set(err, ERR_TIMEOUT, "%.200s", why);
    case CURLE_URL_MALFORMAT:
        return err_set(err, ERR_INVALID, "%.200s", why);
    case CURLE_UNSUPPORTED_PROTOCOL: /* ours, in the URL, or the server's, in the response */
    case CURLE_WEIRD_SERVER_REPLY:
        return err_set(err, connected ? ERR_PROTOCOL : ERR_INVALID, "%.200s", why);
    case CURLE_ABORTED_BY_CALLBACK:
        return err_set(err, ERR_LOST, "the request body ended early");
    case CURLE_WRITE_ERROR:
        return err_set(err, ERR_PROTOCOL, "the head of the response is too large");
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return err_set(err, ERR_TLS_UNTRUSTED, "%.200s", why);
    case CURLE_SSL_CONNECT_ERROR:
        return err_set(err, ERR_UNREACHABLE, "%.200s", why);
    default:
        return err_set(err, ERR_CUT_OFF, "%.200s", why);
    }
}

static void fetch_call_report_head(struct fetch_call *c)
{
    long status = 0;

    if (c->head_reported)
        return;
    c->head_reported = true;
    curl_easy_getinfo(c->easy, CURLINFO_RESPONSE_CODE, &status);
    if (c->ops->on_head)
        c->ops->on_head(c->arg, (int)status);
}

static void fetch_call_finish(struct fetch_call *c)
{
    const struct fetch_ops *ops = c->ops;
    void *arg = c->arg;
    struct err err = { 0 };

    if (c->result != CURLE_OK)
        (void)fetch_call_error(c, &err);
    bool ok = c->result == CURLE_OK;
    if (ok && !c->cancelled)
        fetch_call_report_head(c); /* a response without a body */
    if (!c->cancelled)
        ops->on_done(arg, ok ? NULL : &err);
    fetch_call_free(c);
}

static void fetch_collect_finished(struct fetch *f)
{
    CURLMsg *m;
    int left;

    while ((m = curl_multi_info_read(f->multi, &left))) {
        struct fetch_call *c = NULL;

        if (m->msg != CURLMSG_DONE)
            continue;
        curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&c);
        c->is_finished = true;
        c->result = m->data.result;
    }
}

static void fetch_add_queued(struct fetch *f)
{
    for (struct fetch_call *c = f->calls; c; c = c->next) {
        if (!c->is_queued || c->cancelled)
            continue;
        c->is_queued = false;
        if (curl_multi_add_handle(f->multi, c->easy) == CURLM_OK)
            continue;
        c->is_finished = true;
        c->result = CURLE_FAILED_INIT;
    }
}

/* Runs outside of libcurl: new calls, changed pauses, and finished calls. A finished call may start
 * or cancel others. */
static void fetch_process_pending(void *arg)
{
    struct fetch *f = arg;

    fetch_add_queued(f);
    for (struct fetch_call *c = f->calls; c; c = c->next)
        if (c->pause_changed && !c->is_finished && !c->cancelled) {
            c->pause_changed = false;
            f->depth++;
            curl_easy_pause(c->easy, (c->download_held ? CURLPAUSE_RECV : 0) | (c->upload_paused ? CURLPAUSE_SEND : 0));
            f->depth--;
        }
    fetch_collect_finished(f);
    for (struct fetch_call *c = f->calls; c;)
        if (c->is_finished || c->cancelled) {
            fetch_call_finish(c);
            c = f->calls;
        } else {
            c = c->next;
        }
}

/* --- callbacks of libcurl: descriptors and timeout --- */

static void fetch_drive_curl(struct fetch *f, curl_socket_t fd, int events)
{
    int running;

    f->depth++;
    curl_multi_socket_action(f->multi, fd, events, &running);
    f->depth--;
    fetch_process_later(f);
}

static void fetch_on_socket(void *arg, uint32_t events)
{
    struct fetch_socket *w = arg;

    fetch_drive_curl(w->f, w->io.fd,
                     (events & (EPOLLIN | EPOLLHUP | EPOLLERR) ? CURL_CSELECT_IN : 0) |
                         (events & EPOLLOUT ? CURL_CSELECT_OUT : 0) | (events & EPOLLERR ? CURL_CSELECT_ERR : 0));
}

static int fetch_on_curl_socket(CURL *easy UNUSED, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
    struct fetch *f = arg;
    struct fetch_socket *w = socket_arg;
    uint32_t events = (what & CURL_POLL_IN ? EPOLLIN : 0u) | (what & CURL_POLL_OUT ? EPOLLOUT : 0u);

    if (what == CURL_POLL_REMOVE) {
        if (w)
            ev_io_del(f->ev, &w->io);
        free(w);
        curl_multi_assign(f->multi, fd, NULL);
        return 0;
    }
    if (w) {
        ev_io_set(f->ev, &w->io, events);
        return 0;
    }
    w = mem_new(struct fetch_socket);
    w->f = f;
    if (ev_io_add(f->ev, &w->io, fd, events, fetch_on_socket, w, NULL) < 0) {
        free(w);
        return -1;
    }
    curl_multi_assign(f->multi, fd, w);
    return 0;
}

static void fetch_on_timer(void *arg)
{
    fetch_drive_curl(arg, CURL_SOCKET_TIMEOUT, 0);
}

static int fetch_on_curl_timer(CURLM *multi UNUSED, long ms, void *arg)
{
    struct fetch *f = arg;

    if (ms < 0)
        ev_timer_clear(f->ev, &f->timer);
    else
        ev_timer_set(f->ev, &f->timer, ev_now(f->ev) + (uint64_t)ms * NS_PER_MS, fetch_on_timer, f);
    return 0;
}

/* --- one response --- */

static size_t fetch_on_header(char *line, size_t size, size_t n, void *arg)
{
    struct fetch_call *c = arg;

    c->head_bytes += size * n;
    if (++c->head_lines > HEADERS_MAX || c->head_bytes > HEAD_MAX)
        return 0;
    (void)line;
    return size * n;
}

static size_t fetch_on_body(char *data, size_t size, size_t n, void *arg)
{
    struct fetch_call *c = arg;

    if (c->cancelled)
        return size * n;
    fetch_call_report_head(c);
    if (c->download_held)
        return CURL_WRITEFUNC_PAUSE;
    if (!c->cancelled && c->ops->on_data)
        c->ops->on_data(c->arg, data, size * n);
    return size * n;
}

static size_t fetch_on_upload(char *to, size_t size, size_t n, void *arg)
{
    struct fetch_call *c = arg;
    ssize_t got = c->cancelled ? FETCH_STOP : c->ops->on_read(c->arg, to, size * n);

    if (got == FETCH_LATER) {
        c->upload_paused = true;
        return CURL_READFUNC_PAUSE;
    }
    return got < 0 ? CURL_READFUNC_ABORT : (size_t)got;
}

/* --- calls --- */

static void fetch_call_set_body(struct fetch_call *c, const struct fetch_spec *spec)
{
    if (c->ops->on_read && !spec->body) {
        curl_easy_setopt(c->easy, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(c->easy, CURLOPT_READFUNCTION, fetch_on_upload);
        curl_easy_setopt(c->easy, CURLOPT_READDATA, c);
        if (spec->upload != FETCH_UNTIL_END)
            curl_easy_setopt(c->easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)spec->upload);
    } else if (spec->body) {
        c->body = mem_copy(spec->body, spec->body_len);
        curl_easy_setopt(c->easy, CURLOPT_POSTFIELDS, c->body);
        curl_easy_setopt(c->easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)spec->body_len);
    }
    if (spec->method && str_eq(spec->method, "HEAD"))
        curl_easy_setopt(c->easy, CURLOPT_NOBODY, 1L);
    else if (spec->method)
        curl_easy_setopt(c->easy, CURLOPT_CUSTOMREQUEST, spec->method);
}

/* The address that was checked is the one that is connected to: there is no second look-up in
 * between. */
static curl_socket_t fetch_open_socket(void *arg, curlsocktype purpose UNUSED, struct curl_sockaddr *addr)
{
    struct fetch_call *c = arg;

    if (!c->may_connect(c->arg, &addr->addr))
        return CURL_SOCKET_BAD;
    return socket(addr->family, addr->socktype | SOCK_CLOEXEC, addr->protocol);
}

static void fetch_call_set_options(struct fetch_call *c, const struct fetch_spec *spec)
{
    CURL *e = c->easy;

    curl_easy_setopt(e, CURLOPT_URL, spec->url);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(e, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(e, CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, c->error_text);
    curl_easy_setopt(e, CURLOPT_PRIVATE, c);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT_MS, (long)(spec->connect_ms ? spec->connect_ms : CONNECT_MS));
    if (spec->silence_ms) {
        curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
        curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)((spec->silence_ms + 999) / 1000));
    }
    if (spec->may_connect) {
        c->may_connect = spec->may_connect;
        curl_easy_setopt(e, CURLOPT_OPENSOCKETFUNCTION, fetch_open_socket);
        curl_easy_setopt(e, CURLOPT_OPENSOCKETDATA, c);
        /* The address of an open connection was checked by another call. */
        curl_easy_setopt(e, CURLOPT_FRESH_CONNECT, 1L);
        curl_easy_setopt(e, CURLOPT_FORBID_REUSE, 1L);
    }
    if (spec->unix_socket)
        curl_easy_setopt(e, CURLOPT_UNIX_SOCKET_PATH, spec->unix_socket);
    if (spec->cacert) {
        curl_easy_setopt(e, CURLOPT_CAINFO, spec->cacert);
        curl_easy_setopt(e, CURLOPT_CAPATH, NULL);
    }
    for (const char *const *h = spec->headers; h && *h; h++)
        c->headers = curl_slist_append(c->headers, *h);
    c->headers = curl_slist_append(c->headers, "Expect:");
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, c->headers);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, fetch_on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, c);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, fetch_on_body);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, c);
    fetch_call_set_body(c, spec);
}

int fetch_start(struct fetch *f, const struct fetch_spec *spec, const struct fetch_ops *ops, void *arg,
                struct fetch_call **ret, struct err *err)
{
    CURL *easy = curl_easy_init();

    if (!easy)
        return err_set(err, ERR_LIMIT, "no memory for a request");
    struct fetch_call *c = mem_new(struct fetch_call);
    *c = (struct fetch_call){ .f = f, .easy = easy, .ops = ops, .arg = arg, .next = f->calls };
    fetch_call_set_options(c, spec);
    f->calls = c;
    c->is_queued = f->depth > 0;
    if (c->is_queued)
        fetch_process_later(f);
    CURLMcode bad = c->is_queued ? CURLM_OK : curl_multi_add_handle(f->multi, easy);
    if (bad) {
        fetch_call_free(c);
        return err_set(err, ERR_SYS, "%s", curl_multi_strerror(bad));
    }
    *ret = c;
    return 0;
}

void fetch_cancel(struct fetch_call *c)
{
    if (!c)
        return;
    c->cancelled = true;
    if (c->f->depth == 0 && !c->is_finished)
        fetch_call_free(c);
    else
        fetch_process_later(c->f);
}

void fetch_hold(struct fetch_call *c, bool hold)
{
    if (c->download_held == hold)
        return;
    c->download_held = hold;
    c->pause_changed = true;
    fetch_process_later(c->f);
}

void fetch_resume(struct fetch_call *c)
{
    if (!c->upload_paused)
        return;
    c->upload_paused = false;
    c->pause_changed = true;
    fetch_process_later(c->f);
}

const char *fetch_header(struct fetch_call *c, const char *name)
{
    struct curl_header *h;

    if (curl_easy_header(c->easy, name, 0, CURLH_HEADER, -1, &h) != CURLHE_OK)
        return NULL;
    return h->value;
}

bool fetch_is_safe(const char *url)
{
    static const char *const here[] = { "localhost", "127.0.0.1", "[::1]" };
    const char *p = url;

    if (str_starts(url, "https://"))
        return true;
    if (!str_eat(&p, "http://"))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(here); i++) {
        size_t n = strlen(here[i]);

        if (strncmp(p, here[i], n) == 0 && (p[n] == ':' || p[n] == '/' || !p[n]) && !strchr(p, '@'))
            return true;
    }
    return false;
}

char *fetch_escape(const char *text)
{
    char *escaped = curl_easy_escape(NULL, text, 0);
    char *copy = str_dup(escaped ? escaped : "");

    curl_free(escaped);
    return copy;
}

/* --- lifecycle --- */

int fetch_new(struct ev *ev, struct fetch **ret, struct err *err)
{
    static bool ready;

    if (!ready && curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return err_set(err, ERR_SYS, "libcurl cannot be initialised");
    ready = true;
    CURLM *multi = curl_multi_init();
    if (!multi)
        return err_set(err, ERR_LIMIT, "no memory for requests");
    struct fetch *f = mem_new(struct fetch);
    *f = (struct fetch){ .ev = ev, .multi = multi };
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, fetch_on_curl_socket);
    curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, f);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, fetch_on_curl_timer);
    curl_multi_setopt(multi, CURLMOPT_TIMERDATA, f);
    *ret = f;
    return 0;
}

void fetch_free(struct fetch *f)
{
    if (!f)
        return;
    while (f->calls)
        fetch_call_free(f->calls);
    curl_multi_cleanup(f->multi);
    ev_timer_clear(f->ev, &f->timer);
    ev_defer_clear(f->ev, &f->pending);
    free(f);
}
