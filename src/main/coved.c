/* coved - the server itself: HTTP on one side, the jailer's socket and the store on the other.
 *
 * It has a user of its own, no capability and no way to get one; it never forks and never opens a path of a sandbox.
 * All it could lose by being killed lies elsewhere: sandboxes in the jailer, rows in the store, listening sockets in
 * the supervisor. So it may crash at any moment, and is started again.
 *
 * SIGTERM ends coved alone, and sandboxes live on. SIGINT says that the whole server goes: then it ends them itself,
 * because who is asked later what became of them is told the truth only by somebody who was there. */
#include "api/api.h"
#include "api/recorder.h"
#include "auth/auth.h"
#include "auth/seal.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "conf/conf.h"
#include "doc/doc.h"
#include "ev/ev.h"
#include "http/server.h"
#include "polfile/policy_file.h"
#include "sandbox/manager.h"
#include "serve/place.h"
#include "serve/sockets.h"
#include "store/store.h"
#include "tls/server.h"
#include "wire/door.h"

#include "cove_version.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define FIRST_SOCKET 3
#define GC_FIRST_NS (60 * NS_PER_S)
#define GC_EVERY_NS (3600 * NS_PER_S)
#define LISTENERS_MAX 16
#define HANDSHAKES_MAX 256u         /* at one time */
#define PATIENCE_NS (10 * NS_PER_S) /* for the ends of all sandboxes */

struct coved {
    struct ev *ev;
    struct conf conf;
    struct place place;
    struct floor floor;
    struct store *store;
    struct recorder *recorder;
    struct auth *auth;
    struct manager *manager;
    struct api *api;
    struct http_server *http;
    struct tls_server *tls; /* NULL: the address is served without */
    int tls_source;         /* whoever reads its files for us; -1: nobody, we do */
    struct buf without_tls; /* the answer to those who speak without it */
    struct ev_timer gc;
    uint64_t began_ns, began_real_ns; /* of the machine; of the calendar */
    int ready_fd;                     /* of whoever started us; -1: nobody wants to know */
    uint64_t sockets;
    struct ev_timer patience;
    bool stopping, for_good;
};

/* --- what it was given --- */

struct words {
    const char *config_fd, *listen_fds, *ready_fd, *tls_fd;
};

static int read_fd_number(const char *name, const char *text, uint64_t *ret, struct err *err)
{
    if (text && !str_to_u64(text, 1024, ret))
        return err_set(err, ERR_USAGE, "%s: '%.20s' is no number of descriptors", name, text);
    return 0;
}

/* From a supervisor: what it read, whole. The offset of the descriptor is shared with those who read it before us. */
static int read_passed(struct coved *d, int fd, struct problems *pr)
{
    auto_free char *text = mem_alloc(DOC_BYTES_MAX + 1);
    ssize_t n = pread(fd, text, DOC_BYTES_MAX, 0);

    pr->file = "configuration of the supervisor";
    if (n >= 0)
        return conf_read(&d->conf, text, (size_t)n, pr);
    problems_add(pr, ERR_SYS, 0, 0, NULL, "descriptor %d cannot be read", fd);
    return -1;
}

static int read_settings(struct coved *d, int argc, char **argv, struct problems *pr)
{
    struct words w = { 0 };
    const struct conf_option own[] = { { "--config-fd", &w.config_fd, NULL },
                                       { "--listen-fds", &w.listen_fds, NULL },
                                       { "--ready-fd", &w.ready_fd, NULL },
                                       { "--tls-fd", &w.tls_fd, NULL } };
    uint64_t config = 0, ready = 0, tls = 0;
    struct err err = { 0 };

    conf_init(&d->conf);
    conf_own_flags(argc, argv, own, ARRAY_LEN(own));
    if (!w.config_fd && conf_command(&d->conf, "coved", argc, argv, environ, own, ARRAY_LEN(own), pr) < 0)
        return -1;
    if (read_fd_number("--config-fd", w.config_fd, &config, &err) < 0 ||
        read_fd_number("--listen-fds", w.listen_fds, &d->sockets, &err) < 0 ||
        read_fd_number("--ready-fd", w.ready_fd, &ready, &err) < 0 ||
        read_fd_number("--tls-fd", w.tls_fd, &tls, &err) < 0) {
        problems_add(pr, err.id, 0, 0, NULL, "%s", err.msg);
        return -1;
    }
    d->ready_fd = ready ? (int)ready : -1;
    d->tls_source = tls ? (int)tls : -1;
    if (!config)
        return 0;
    if (read_passed(d, (int)config, pr) < 0)
        return -1;
    pr->file = "coved";
    return conf_flags(&d->conf, argc, argv, own, ARRAY_LEN(own), pr);
}

/* A service manager may hand over sockets in its own way: LISTEN_FDS of them, from 3 on, for LISTEN_PID. */
static void count_sockets(struct coved *d)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    uint64_t for_whom = 0;

    if (!d->sockets && pid && n && str_to_u64(pid, INT32_MAX, &for_whom) && for_whom == (uint64_t)getpid())
        (void)str_to_u64(n, 16, &d->sockets);
    for (uint64_t i = 0; i < d->sockets; i++)
        (void)fcntl(FIRST_SOCKET + (int)i, F_SETFD, FD_CLOEXEC);
}

/* --- what it gives up --- */

static int drop_capabilities(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { { 0 } }, held[2] = { { 0 } };

    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capget, &head, held) == 0 && memcmp(held, none, sizeof(none)) == 0)
        return 0; /* a service manager's filter may refuse capset, and there is nothing to drop */
    return (int)syscall(SYS_capset, &head, none);
}

/* The leak checker of a sanitized build is a process that looks into this one. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LOOKED_INTO 1
#endif
#endif
#ifndef LOOKED_INTO
#define LOOKED_INTO 0
#endif

static int give_up(struct err *err)
{
    struct rlimit files;

    if (geteuid() == 0)
        return err_set(err, ERR_DENIED, "coved never runs as root; `cove serve` starts it as a user of its own");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || drop_capabilities() < 0 ||
        prctl(PR_SET_DUMPABLE, LOOKED_INTO, 0, 0, 0) < 0)
        return err_sys(err, ERR_SYS, "give up privileges");
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    umask(077);
    return 0;
}

/* --- its parts --- */

static int connect_jailer(void *arg, int *ret_jailer, int *ret_monitor, struct err *err)
{
    struct coved *d = arg;

    *ret_monitor = -1; /* the jailer knows the way to the monitor */
    return door_knock(d->place.jailer, ret_jailer, NULL, err);
}

static int open_store(struct coved *d, struct err *err)
{
    auto_free char *path = str_printf("%s/cove.db", d->place.state);
    struct store_settings set = { .path = path, .sync_full = str_eq(conf_text(&d->conf, SETTING_SYNC), "full") };

    if (mkdir(d->place.output, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_DENIED, "%.160s", d->place.output);
    return store_open(d->ev, &set, &d->store, err);
}

static int open_recorder(struct coved *d, struct err *err)
{
    struct recorder_settings set = { .state_dir = d->place.state,
                                     .sync_full = str_eq(conf_text(&d->conf, SETTING_SYNC), "full"),
                                     .segment_max = conf_number(&d->conf, SETTING_AUDIT_SEGMENT),
                                     .keep_max = conf_number(&d->conf, SETTING_KEEP_AUDIT),
                                     .webhook = conf_text(&d->conf, SETTING_WEBHOOK),
                                     .webhook_allow = conf_list(&d->conf, SETTING_WEBHOOK_ALLOW) };

    return conf_on(&d->conf, SETTING_AUDIT) ? recorder_open(d->ev, d->store, &set, &d->recorder, err) : 0;
}

/* A floor that is there and cannot be read stops the server: nobody would notice that it does not hold. */
static int read_floor(struct coved *d, struct err *err)
{
    struct problems *pr = mem_new(struct problems);
    const char *more = conf_text(&d->conf, SETTING_FLOOR);
    auto_buf text = { 0 };
    int rc;

    if (*more)
        setenv(FLOOR_VARIABLE, more, 1);
    rc = floor_file_load(&d->floor, pr);
    if (rc < 0) {
        problems_print(pr, &text);
        (void)fd_write_all(STDERR_FILENO, text.data, text.len);
        err_set(err, pr->n ? pr->list[0].id : ERR_POLICY_VALUE, "the floor of this host: %.180s",
                pr->n ? pr->list[0].msg : "it cannot be read");
    }
    free(pr);
    return rc;
}

static void on_sandbox_end(void *arg, const char *id, const char *owner, enum ended_by by, const struct err *why)
{
    const struct coved *d = arg;

    recorder_sandbox_ended(d->recorder, id, owner, by, why);
}

static void on_receipt(void *arg, const char *owner, const struct receipt *r)
{
    const struct coved *d = arg;

    if (d->api)
        api_on_receipt(d->api, owner, r);
}

static int open_manager(struct coved *d, struct err *err)
{
    bool strict = conf_on(&d->conf, SETTING_ENFORCED);
    struct manager_settings set = {
        .store = d->store,
        .output_dir = d->place.output,
        .connect = connect_jailer,
        .on_end = on_sandbox_end,
        .on_receipt = on_receipt,
        .arg = d,
        .live_max = (uint32_t)conf_number(&d->conf, SETTING_SANDBOXES),
        .executions_max = (uint32_t)conf_number(&d->conf, SETTING_EXECUTIONS),
        .enforce = strict ? UINT64_MAX : d->floor.enforce,
        .every_wall = strict || d->floor.every_wall,
        .sync_full = str_eq(conf_text(&d->conf, SETTING_SYNC), "full"),
    };

    return manager_new(d->ev, &set, &d->manager, err);
}

static void on_revoked(void *arg, const char *key_id)
{
    struct coved *d = arg;

    api_on_revoked(d->api, key_id);
}

static const char *text_or_null(const struct coved *d, enum setting s)
{
    const char *text = conf_text(&d->conf, s);

    return *text ? text : NULL;
}

/* False: tokens of nobody are accepted. */
static bool read_issuer(const struct coved *d, struct issuer_settings *ret)
{
    *ret = (struct issuer_settings){
        .issuer = conf_text(&d->conf, SETTING_JWT_ISSUER),
        .audience = conf_text(&d->conf, SETTING_JWT_AUDIENCE),
        .jwks_url = text_or_null(d, SETTING_JWT_JWKS_URL),
        .jwks_file = text_or_null(d, SETTING_JWT_JWKS_FILE),
        .user_claim = conf_text(&d->conf, SETTING_JWT_USER),
        .tenant_claim = conf_text(&d->conf, SETTING_JWT_TENANT_CLAIM),
        .role_claim = conf_text(&d->conf, SETTING_JWT_ROLE_CLAIM),
        .skew_ms = conf_number(&d->conf, SETTING_JWT_SKEW),
        .lifetime_max_ms = conf_number(&d->conf, SETTING_JWT_LIFETIME),
        .floor_ms = conf_number(&d->conf, SETTING_JWT_FLOOR),
        .age_ms = conf_number(&d->conf, SETTING_JWT_AGE),
    };
    return *ret->issuer || *ret->audience || ret->jwks_url || ret->jwks_file;
}

static int open_auth(struct coved *d, struct err *err)
{
    struct issuer_settings issuer;
    auto_free char *path = str_printf("%s/token.key", d->place.state);
    uint8_t pepper[SEAL_LEN];
    struct auth_settings set = {
        .on_revoked = on_revoked,
        .arg = d,
        .owner_uid = geteuid(),
        .rate = { [AUTH_CLASS_DEFAULT] = conf_text(&d->conf, SETTING_RATE_DEFAULT),
                  [AUTH_CLASS_CREATE] = conf_text(&d->conf, SETTING_RATE_CREATE),
                  [AUTH_CLASS_EXECUTE] = conf_text(&d->conf, SETTING_RATE_EXECUTE) },
        .jwt = read_issuer(d, &issuer) ? &issuer : NULL,
        .jwt_tenant = conf_text(&d->conf, SETTING_JWT_TENANT),
        .jwt_role = conf_text(&d->conf, SETTING_JWT_NEW_ROLE),
        .pepper = pepper,
    };

    if (seal_pepper(path, pepper, err) < 0)
        return -1;
    int rc = auth_new(d->ev, d->store, &set, &d->auth, err);
    explicit_bzero(pepper, sizeof(pepper));
    return rc;
}

static void on_done(const struct http_done *done, void *ctx)
{
    /* A target that is no path is a proxy's, and may have a name and password in it. */
    const char *path = done->path[0] == '/' || str_eq(done->path, "*") ? done->path : "(no path)";

    api_on_done(done, ctx);
    log_about(LOG_INFO, &(struct log_about){ .request = done->id }, "%s %.200s %d %" PRIu64 " us, %" PRIu64 " bytes%s",
              done->method, path, done->status, (uint64_t)(done->duration_ns / NS_PER_US), done->bytes_out,
              done->whole ? "" : ", cut off");
}

/* Ages are reckoned from the calendar at the start: one that is set ahead later must not make everything old at once.
 */
static uint64_t before(const struct coved *d, enum setting s)
{
    uint64_t now = (d->began_real_ns + (ev_now(d->ev) - d->began_ns)) / NS_PER_MS, keep = conf_number(&d->conf, s);

    return now > keep ? now - keep : 0;
}

static void retention(void *arg, struct store_retention *ret)
{
    const struct coved *d = arg;

    *ret = (struct store_retention){
        .executions_before_ms = before(d, SETTING_KEEP_EXECUTIONS),
        .sandboxes_before_ms = before(d, SETTING_KEEP_SANDBOXES),
        .events_before_ms = before(d, SETTING_KEEP_EVENTS),
        .idem_before_ms = before(d, SETTING_KEEP_EVENTS),
        .usage_before_ms = before(d, SETTING_KEEP_USAGE),
        .output_bytes_max = conf_number(&d->conf, SETTING_KEEP_BYTES),
    };
}

static void figures(void *arg, struct buf *out)
{
    const struct coved *d = arg;

    if (d->tls)
        tls_server_figures(d->tls, out);
}

static void open_api(struct coved *d)
{
    d->api = api_new(&(struct api_settings){ .ev = d->ev,
                                             .store = d->store,
                                             .manager = d->manager,
                                             .auth = d->auth,
                                             .audit = recorder_audit(d->recorder),
                                             .webhook = recorder_webhook(d->recorder),
                                             .audit_content = conf_on(&d->conf, SETTING_AUDIT_CONTENT),
                                             .version = COVE_VERSION,
                                             .floor = d->floor.file ? &d->floor : NULL,
                                             .scratch = d->place.state,
                                             .login_issuer = conf_text(&d->conf, SETTING_JWT_ISSUER),
                                             .login_audience = conf_text(&d->conf, SETTING_JWT_AUDIENCE),
                                             .login_client = conf_text(&d->conf, SETTING_JWT_CLIENT),
                                             .retention = retention,
                                             .figures = figures,
                                             .arg = d });
}

static int open_http(struct coved *d, struct err *err)
{
    struct http_settings set = {
        .tables = api_tables,
        .hosts = conf_list(&d->conf, SETTING_HOSTS),
        .origins = conf_list(&d->conf, SETTING_ORIGINS),
        .ctx = d->api,
        .on_request = api_on_request,
        .on_done = on_done,
    };

    http_limits_default(&set.limits);
    set.limits.conns_max = (unsigned)conf_number(&d->conf, SETTING_HTTP_CONNS);
    set.limits.conns_per_addr = (unsigned)conf_number(&d->conf, SETTING_HTTP_CONNS_PEER);
    set.limits.body_max = conf_number(&d->conf, SETTING_HTTP_BODY);
    set.limits.idle_ms = conf_number(&d->conf, SETTING_HTTP_IDLE);
    set.limits.head_ms = conf_number(&d->conf, SETTING_HTTP_HEAD);
    set.limits.body_ms = conf_number(&d->conf, SETTING_HTTP_BODY_TIME);
    set.limits.write_ms = conf_number(&d->conf, SETTING_HTTP_WRITE);
    set.limits.line_max = conf_number(&d->conf, SETTING_HTTP_LINE);
    set.limits.head_max = conf_number(&d->conf, SETTING_HTTP_HEADERS);
    set.limits.headers_max = (unsigned)conf_number(&d->conf, SETTING_HTTP_HEADER_COUNT);
    set.limits.buffered_max = conf_number(&d->conf, SETTING_HTTP_BUFFERED);
    set.limits.ws_max = (unsigned)conf_number(&d->conf, SETTING_WS_MAX);
    set.limits.ws_per_addr = (unsigned)conf_number(&d->conf, SETTING_WS_PEER);
    set.limits.ws_message_max = conf_number(&d->conf, SETTING_WS_MESSAGE);
    set.limits.ws_ping_ms = conf_number(&d->conf, SETTING_WS_PING);
    set.limits.ws_rate = (unsigned)conf_number(&d->conf, SETTING_WS_RATE);
    if (http_new(d->ev, &set, &d->http, err) < 0)
        return -1;
    api_set_server(d->api, d->http);
    return 0;
}

/* --- where it listens --- */

static void on_tls(void *arg, int fd, const union tls_addr *from)
{
    struct coved *d = arg;

    http_adopt(d->http, fd, &from->any);
}

static const char *without_tls(struct coved *d)
{
    auto_buf body = { 0 };
    struct err err;

    err_set(&err, ERR_TLS_NEEDED, "this address speaks TLS, and the request came without");
    http_error_json(&err, "", NULL, NULL, &body);
    buf_addf(&d->without_tls,
             "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
             "Content-Length: %zu\r\n\r\n%s",
             body.len, body.data);
    return d->without_tls.data;
}

static int open_tls(struct coved *d, const int *listeners, size_t n, struct err *err)
{
    const struct tls_server_settings set = {
        .paths = { { [PEM_CERTIFICATE] = conf_text(&d->conf, SETTING_TLS_CERT),
                     [PEM_KEY] = conf_text(&d->conf, SETTING_TLS_KEY),
                     [PEM_CLIENT_CA] = conf_text(&d->conf, SETTING_TLS_CLIENT_CA) } },
        .source = d->tls_source,
        .front = { .listeners = listeners,
                   .nlisteners = n,
                   .conns_max = (unsigned)(conf_number(&d->conf, SETTING_HTTP_CONNS) +
                                           conf_number(&d->conf, SETTING_WS_MAX)),
                   .handshakes_max = (unsigned)min_u64(HANDSHAKES_MAX, conf_number(&d->conf, SETTING_HTTP_CONNS)),
                   .handshake_ms = conf_number(&d->conf, SETTING_TLS_HANDSHAKE),
                   .write_ms = conf_number(&d->conf, SETTING_HTTP_WRITE),
                   .plain = without_tls(d),
                   .on_conn = on_tls,
                   .arg = d },
    };

    return tls_server_new(d->ev, &set, &d->tls, err);
}

static bool is_tcp(int fd)
{
    struct sockaddr_storage a = { 0 };
    socklen_t len = sizeof(a);

    return getsockname(fd, (struct sockaddr *)&a, &len) == 0 && a.ss_family != AF_UNIX;
}

/* Sockets of the supervisor, or our own. Where there is a certificate, TCP belongs to TLS; the Unix socket never does,
 * and nobody who came over TLS is taken for somebody at the Unix socket: who is asked by http_adopt(), not by the kind
 * of the descriptor. */
static int open_listeners(struct coved *d, struct err *err)
{
    const char *listen = conf_text(&d->conf, SETTING_LISTEN);
    bool tls = *conf_text(&d->conf, SETTING_TLS_CERT);
    int fds[LISTENERS_MAX];
    size_t n = 0;

    for (uint64_t i = 0; i < d->sockets; i++) {
        int fd = FIRST_SOCKET + (int)i;

        if (tls && is_tcp(fd) && n < ARRAY_LEN(fds))
            fds[n++] = fd;
        else if (http_listen_fd(d->http, fd, err) < 0)
            return -1;
    }
    if (!d->sockets && !str_eq(listen, "off")) {
        if (tls ? sockets_tcp(listen, &fds[n++], err) < 0 : http_listen_tcp(d->http, listen, NULL, err) < 0)
            return -1;
    }
    if (!d->sockets && http_listen_unix(d->http, d->place.api, 0600, err) < 0)
        return -1;
    return n ? open_tls(d, fds, n, err) : 0;
}

/* --- housekeeping --- */

static void collect(void *arg);

static void on_collected(void *arg, const struct err *err, const struct manager_gc *removed)
{
    const struct coved *d = arg;

    if (err) {
        log_warn("retention: %s", err->msg);
    } else if (removed->executions + removed->sandboxes + removed->events) {
        auto_free char *details = str_printf("{\"executions\":%" PRIu64 ",\"sandboxes\":%" PRIu64 ",\"events\":%" PRIu64
                                             "}",
                                             removed->executions, removed->sandboxes, removed->events);

        recorder_note(d->recorder, "server.gc", details);
        log_info("retention: removed %" PRIu64 " executions, %" PRIu64 " sandboxes, %" PRIu64 " events",
                 removed->executions, removed->sandboxes, removed->events);
    }
}

static void collect(void *arg)
{
    struct coved *d = arg;
    struct store_retention keep;

    retention(d, &keep);
    manager_gc(d->manager, &keep, false, on_collected, d);
    ev_timer_set(d->ev, &d->gc, ev_now(d->ev) + GC_EVERY_NS, collect, d);
}

/* --- its life --- */

static void leave(void *arg)
{
    struct coved *d = arg;

    ev_stop(d->ev);
}

static void on_drained(void *arg)
{
    struct coved *d = arg;
    struct err why;

    if (!d->for_good) {
        leave(d);
        return;
    }
    err_set(&why, ERR_SANDBOX_ENDED, "the server was stopped");
    ev_timer_set(d->ev, &d->patience, ev_now(d->ev) + PATIENCE_NS, leave, d);
    manager_end_all(d->manager, &why, leave, d);
}

static void on_signal(void *arg, int signo)
{
    struct coved *d = arg;

    if (signo == SIGHUP) {
        if (d->tls)
            tls_server_reload(d->tls);
        return;
    }
    if (d->stopping) {
        ev_stop(d->ev);
        return;
    }
    d->stopping = true;
    d->for_good = signo == SIGINT;
    log_info("stopping: requests have %" PRIu64 " ms to finish", conf_number(&d->conf, SETTING_DRAIN));
    api_stop(d->api);
    if (d->tls)
        tls_server_close(d->tls);
    http_drain(d->http, conf_number(&d->conf, SETTING_DRAIN), on_drained, d);
}

static int watch_signals(struct coved *d, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    return ev_signals(d->ev, &set, on_signal, d, err);
}

static void tell(const struct coved *d, const char *line)
{
    if (d->ready_fd >= 0 && fd_write_all(d->ready_fd, line, strlen(line)) < 0)
        log_warn("nobody listens at descriptor %d", d->ready_fd);
}

static void on_first_key(void *arg, const struct err *err, const struct store_key *row UNUSED, const char *secret)
{
    struct coved *d = arg;

    if (!err) {
        auto_free char *line = str_printf("key %s\n", secret);

        tell(d, line);
        explicit_bzero(line, strlen(line));
    } else if (err->id != ERR_EXISTS) {
        log_error("the first key: %s", err->msg);
    }
    tell(d, "ready\n");
}

/* The first key goes to whoever started us and is shown there; a log is no place for it. Under a service manager nobody
 * listens: then the local owner makes keys over the socket. */
static void become_ready(struct coved *d)
{
    if (d->ready_fd >= 0)
        auth_first_key(d->auth, clock_real_ns() / NS_PER_MS, on_first_key, d);
}

static int serve(struct coved *d, struct err *err)
{
    struct place_wishes w = {
        .state_dir = conf_text(&d->conf, SETTING_STATE_DIR),
        .run_dir = conf_text(&d->conf, SETTING_RUN_DIR),
        .user = "",
        .euid = geteuid(),
        .home = getenv("HOME"),
        .xdg_state = getenv("XDG_STATE_HOME"),
        .xdg_runtime = getenv("XDG_RUNTIME_DIR"),
    };

    if (give_up(err) < 0 || place_find(&w, &d->place, err) < 0 || ev_new(&d->ev, err) < 0 ||
        watch_signals(d, err) < 0 || read_floor(d, err) < 0 || open_store(d, err) < 0 || open_recorder(d, err) < 0 ||
        open_auth(d, err) < 0 || open_manager(d, err) < 0)
        return -1;
    d->began_ns = ev_now(d->ev);
    d->began_real_ns = clock_real_ns();
    open_api(d);
    if (open_http(d, err) < 0 || open_listeners(d, err) < 0)
        return -1;
    ev_timer_set(d->ev, &d->gc, ev_now(d->ev) + GC_FIRST_NS, collect, d);
    if (recorder_damaged(d->recorder))
        api_on_damage(d->api);
    recorder_note(d->recorder, "server.start", "{\"version\":\"" COVE_VERSION "\"}");
    log_info("coved %s serves %" PRIu64 " sockets, state in %s", COVE_VERSION, d->sockets ? d->sockets : 2,
             d->place.state);
    become_ready(d);
    ev_run(d->ev);
    return 0;
}

/* In the reverse order, and nothing of it is in a hurry: sandboxes live on. */
static void coved_done(struct coved *d)
{
    if (d->ev) {
        ev_timer_clear(d->ev, &d->gc);
        ev_timer_clear(d->ev, &d->patience);
    }
    store_finish(d->store); /* while all who asked it are there to hear the answers */
    http_free(d->http);
    tls_server_free(d->tls);
    buf_done(&d->without_tls);
    api_free(take_ptr(&d->api));
    if (d->stopping)
        recorder_note(d->recorder, "server.stop", NULL);
    manager_free(d->manager);
    recorder_close(d->recorder);
    auth_free(d->auth);
    store_close(d->store);
    ev_free(d->ev);
    place_done(&d->place);
    floor_done(&d->floor);
    conf_done(&d->conf);
}

static void start_log(const struct conf *c)
{
    enum log_level level = LOG_INFO;
    enum log_form form = LOG_TEXT;

    (void)log_level_read(conf_text(c, SETTING_LOG_LEVEL), &level);
    (void)log_form_read(conf_text(c, SETTING_LOG_FORMAT), &form);
    log_setup("coved", level);
    log_form(form);
}

int main(int argc, char **argv)
{
    static struct coved d = { .ready_fd = -1, .tls_source = -1 };
    static struct problems pr;
    struct err err = { 0 };
    int status = 0;

    prctl(PR_SET_NAME, "coved");
    if (read_settings(&d, argc, argv, &pr) < 0) {
        auto_buf out = { 0 };

        problems_print(&pr, &out);
        (void)fd_write_all(STDERR_FILENO, out.data, out.len);
        conf_done(&d.conf);
        return problems_exit(&pr);
    }
    start_log(&d.conf);
    count_sockets(&d);
    if (serve(&d, &err) < 0) {
        log_error("%s (%s)", err.msg, err_info(err.id)->fix);
        status = err_info(err.id)->exit;
    }
    coved_done(&d);
    return status;
}
