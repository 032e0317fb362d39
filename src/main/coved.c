/* coved - the server process: HTTP on one side, the jailer's socket and the store on the other.
 *
 * coved runs as its own user, without capabilities and without a way to gain any. It never forks
 * and never opens a path inside a sandbox. All state that must survive is elsewhere: sandboxes in
 * the jailer, rows in the store, listening sockets in the supervisor. So coved may crash at any
 * moment and be restarted.
 *
 * SIGTERM stops only coved, and sandboxes continue. SIGINT stops the whole server: coved then ends
 * the sandboxes itself, because only a running server can record why they ended. */
#include "main/coved.h"

#include "server/auth/mac.h"
#include "server/gateway/open_streams.h"
#include "server/gateway/security_events.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/file/policy_file.h"
#include "core/wire/unix_listener.h"

#include "cove_version.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#define GC_FIRST_NS (60 * NS_PER_S)
#define PATIENCE_NS (10 * NS_PER_S) /* time limit for ending all sandboxes */

/* --- components --- */

static int coved_connect_jailer(void *arg, int *ret_jailer, int *ret_monitor, struct err *err)
{
    struct coved *d = arg;

    *ret_monitor = -1; /* the jailer connects to the monitor */
    return unix_connect(d->paths.jailer_socket, ret_jailer, NULL, err);
}

static int coved_open_store(struct coved *d, struct err *err)
{
    struct store_settings set = { .sync_full = str_eq(conf_text(&d->conf, SETTING_SYNC), "full") };

    if (mkdir(d->paths.output_dir, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_DENIED, "%.160s", d->paths.output_dir);
    if (store_url_parse(conf_text(&d->conf, SETTING_STORE_URL), d->paths.state_dir, &set.url, err) < 0)
        return -1;
    int bad = store_open(d->ev, &set, &d->store, err);
    store_url_done(&set.url);
    return bad;
}

static int coved_open_recorder(struct coved *d, struct err *err)
{
    struct server_audit_settings set = { .state_dir = d->paths.state_dir,
                                         .sync_full = str_eq(conf_text(&d->conf, SETTING_SYNC), "full"),
                                         .segment_max = conf_number(&d->conf, SETTING_AUDIT_SEGMENT),
                                         .keep_max = conf_number(&d->conf, SETTING_KEEP_AUDIT),
                                         .webhook = conf_text(&d->conf, SETTING_WEBHOOK),
                                         .webhook_allow = conf_list(&d->conf, SETTING_WEBHOOK_ALLOW) };

    return conf_is_on(&d->conf, SETTING_AUDIT) ? server_audit_open(d->ev, d->store, &set, &d->recorder, err) : 0;
}

/* Operator limits that exist but cannot be read stop the server: otherwise a missing limit would go
 * unnoticed. */
static int coved_read_operator_limits(struct coved *d, struct err *err)
{
    struct problems *pr = mem_new(struct problems);
    const char *more = conf_text(&d->conf, SETTING_FLOOR);
    auto_buf text = { 0 };
    int rc;

    if (*more)
        setenv(OPERATOR_LIMITS_VARIABLE, more, 1);
    rc = operator_limits_file_load(&d->operator_limits, pr);
    if (rc < 0) {
        problems_print(pr, &text);
        (void)fd_write_all(STDERR_FILENO, text.data, text.len);
        err_set(err, pr->n ? pr->list[0].id : ERR_POLICY_VALUE, "operator limits of this host (floor): %.180s",
                pr->n ? pr->list[0].msg : "cannot be read");
    }
    free(pr);
    return rc;
}

static void coved_on_sandbox_end(void *arg, const char *id, const char *owner, enum ended_by by, const struct err *why)
{
    const struct coved *d = arg;

    server_audit_sandbox_ended(d->recorder, id, owner, ended_by_name(by), why);
}

static void coved_on_denials(void *arg, const char *owner, const struct receipt *r)
{
    const struct coved *d = arg;

    if (d->gateway)
        security_events_count_denials(d->gateway, owner, r->sandbox, r->execution, r->denials, r->ndenials);
}

#define COVED_DESTINATIONS_MAX 8

static void coved_on_refused_destinations(void *arg, const char *owner, const struct receipt *r)
{
    const struct coved *d = arg;
    struct security_destination list[COVED_DESTINATIONS_MAX];
    size_t n = 0;

    for (size_t i = 0; i < r->egress.ndestinations && n < ARRAY_LEN(list); i++) {
        const struct egress_destination *at = &r->egress.destinations[i];

        if (at->refused > 0)
            list[n++] = (struct security_destination){ at->host, at->port, at->refused, at->reason };
    }
    if (d->gateway)
        security_events_count_destinations(d->gateway, owner, r->sandbox, r->execution, list, n, r->egress.refused);
}

static void coved_on_secret_used(void *arg, const char *owner, const char *sandbox, const char *name, const char *host,
                                 uint32_t count)
{
    const struct coved *d = arg;

    server_audit_secret_used(d->recorder, owner, sandbox, name, host, count);
}

static int coved_open_manager(struct coved *d, struct err *err)
{
    bool strict = conf_is_on(&d->conf, SETTING_ENFORCED);
    struct manager_settings set = {
        .store = d->store,
        .output_dir = d->paths.output_dir,
        .connect = coved_connect_jailer,
        .on_end = coved_on_sandbox_end,
        .on_denials = coved_on_denials,
        .on_refused_destinations = coved_on_refused_destinations,
        .on_secret_used = coved_on_secret_used,
        .secrets = d->secrets,
        .arg = d,
        .egress_socket = d->operator_limits.forbids_network ? NULL : d->paths.egress_socket,
        .egress_share = { .connections_max = (uint32_t)conf_number(&d->conf, SETTING_EGRESS_CONNS) },
        .live_max = (uint32_t)conf_number(&d->conf, SETTING_SANDBOXES),
        .executions_max = (uint32_t)conf_number(&d->conf, SETTING_EXECUTIONS),
        .creating_max = (uint32_t)conf_number(&d->conf, SETTING_CREATING),
        .starting_max = (uint32_t)conf_number(&d->conf, SETTING_STARTING),
        .required_limits = strict ? UINT64_MAX : d->operator_limits.must_enforce,
        .require_all_walls = strict || d->operator_limits.requires_every_wall,
        .sync_full = str_eq(conf_text(&d->conf, SETTING_SYNC), "full"),
    };

    d->pools = set.pools = pools_new(d->ev);
    return manager_new(d->ev, &set, &d->manager, err);
}

static void coved_open_executor(struct coved *d)
{
    d->executor = executor_new(&(struct executor_settings){
        .ev = d->ev,
        .ephemerals = manager_ephemerals(d->manager),
        .running_max = (uint32_t)conf_number(&d->conf, SETTING_EXEC_RUNNING),
        .waiting_max = (uint32_t)conf_number(&d->conf, SETTING_EXEC_QUEUE),
        .wait_ms = conf_number(&d->conf, SETTING_EXEC_WAIT),
        .output_bytes = conf_number(&d->conf, SETTING_EXEC_OUTPUT),
        .cache_bytes = conf_number(&d->conf, SETTING_EXEC_CACHE),
        .cache_age_ms = conf_number(&d->conf, SETTING_EXEC_CACHE_AGE),
    });
}

static void coved_open_tools(struct coved *d)
{
    d->template_cache = template_cache_new(d->store);
    d->tools = tools_new(&(struct tools_settings){
        .ev = d->ev,
        .manager = d->manager,
        .store = d->store,
        .script_cache = d->script_cache,
        .executor = d->executor,
        .template_cache = d->template_cache,
        .operator_limits = &d->operator_limits,
        .output_bytes = conf_number(&d->conf, SETTING_TOOLS_OUTPUT),
        .timeout_ms = conf_number(&d->conf, SETTING_TOOLS_TIMEOUT),
    });
}

static void coved_open_script_cache(struct coved *d)
{
    const struct store_script_quota quota = { .count = conf_number(&d->conf, SETTING_SCRIPTS_COUNT),
                                              .bytes = conf_number(&d->conf, SETTING_SCRIPTS_BYTES) };

    d->script_cache = script_cache_new(d->store, &quota);
}

static void coved_on_secrets_loaded(void *arg, const struct err *err)
{
    struct coved *d = arg;

    d->secrets_loaded = true;
    if (err)
        d->secrets_error = *err;
}

/* Adopted sandboxes are bound to their secrets again, so the rows are read before the manager
 * starts. */
static int coved_open_secrets(struct coved *d, struct err *err)
{
    auto_free char *path = str_printf("%s/secret.key", d->paths.state_dir);

    d->secrets = secrets_new(&(struct secrets_settings){
        .ev = d->ev, .store = d->store, .key_file = path, .per_tenant = conf_number(&d->conf, SETTING_SECRETS_COUNT) });
    secrets_load(d->secrets, coved_on_secrets_loaded, d);
    while (!d->secrets_loaded)
        ev_turn(d->ev, 1000);
    *err = d->secrets_error;
    return err->id == ERR_NONE ? 0 : err_wrap(err, "secrets");
}

static void coved_on_revoked(void *arg, const char *key_id)
{
    struct coved *d = arg;

    open_streams_end_revoked(d->gateway, key_id);
}

static const char *coved_text_or_null(const struct coved *d, enum conf_setting s)
{
    const char *text = conf_text(&d->conf, s);

    return *text ? text : NULL;
}

/* Returns false if no issuer is configured: then no JWT is accepted. */
static bool coved_read_issuer(const struct coved *d, struct issuer_settings *ret)
{
    *ret = (struct issuer_settings){
        .issuer = conf_text(&d->conf, SETTING_JWT_ISSUER),
        .audience = conf_text(&d->conf, SETTING_JWT_AUDIENCE),
        .jwks_url = coved_text_or_null(d, SETTING_JWT_JWKS_URL),
        .jwks_file = coved_text_or_null(d, SETTING_JWT_JWKS_FILE),
        .user_claim = conf_text(&d->conf, SETTING_JWT_USER),
        .tenant_claim = conf_text(&d->conf, SETTING_JWT_TENANT_CLAIM),
        .role_claim = conf_text(&d->conf, SETTING_JWT_ROLE_CLAIM),
        .skew_ms = conf_number(&d->conf, SETTING_JWT_SKEW),
        .lifetime_max_ms = conf_number(&d->conf, SETTING_JWT_LIFETIME),
        .refetch_min_ms = conf_number(&d->conf, SETTING_JWT_FLOOR),
        .keys_max_age_ms = conf_number(&d->conf, SETTING_JWT_AGE),
    };
    return *ret->issuer || *ret->audience || ret->jwks_url || ret->jwks_file;
}

static int coved_open_auth(struct coved *d, struct err *err)
{
    struct issuer_settings issuer;
    auto_free char *path = str_printf("%s/token.key", d->paths.state_dir);
    uint8_t pepper[MAC_LEN];
    struct auth_settings set = {
        .on_revoked = coved_on_revoked,
        .arg = d,
        .owner_uid = geteuid(),
        .rate = { [AUTH_CLASS_DEFAULT] = conf_text(&d->conf, SETTING_RATE_DEFAULT),
                  [AUTH_CLASS_CREATE] = conf_text(&d->conf, SETTING_RATE_CREATE),
                  [AUTH_CLASS_EXECUTE] = conf_text(&d->conf, SETTING_RATE_EXECUTE) },
        .jwt = coved_read_issuer(d, &issuer) ? &issuer : NULL,
        .jwt_tenant = conf_text(&d->conf, SETTING_JWT_TENANT),
        .jwt_role = conf_text(&d->conf, SETTING_JWT_NEW_ROLE),
        .pepper = pepper,
    };

    if (mac_load_pepper(path, pepper, err) < 0)
        return -1;
    int rc = auth_new(d->ev, d->store, &set, &d->auth, err);
    explicit_bzero(pepper, sizeof(pepper));
    return rc;
}

static void coved_on_request_done(const struct http_request_summary *done, void *ctx)
{
    /* A target that is not a path was sent for a proxy and may contain a user name and password. */
    const char *path = done->path[0] == '/' || str_eq(done->path, "*") ? done->path : "(not a path)";

    gateway_on_done(done, ctx);
    log_write_with_ids(LOG_INFO, &(struct log_ids){ .request = done->id },
                       "%s %.200s %d %" PRIu64 " us, %" PRIu64 " bytes%s", done->method, path, done->status,
                       (uint64_t)(done->duration_ns / NS_PER_US), done->bytes_out, done->fully_sent ? "" : ", cut off");
}

static void coved_append_metrics(void *arg, struct buf *out)
{
    const struct coved *d = arg;

    if (d->tls)
        tls_server_metrics(d->tls, out);
    mcp_write_metrics(d->mcp, out);
}

static void coved_write_capabilities(void *arg, struct jsonw *w)
{
    const struct coved *d = arg;

    mcp_write_capability(d->mcp, w);
}

static void coved_open_gateway(struct coved *d)
{
    d->gateway = gateway_new(&(struct gateway_settings){ .ev = d->ev,
                                                         .store = d->store,
                                                         .auth = d->auth,
                                                         .audit = server_audit_log(d->recorder),
                                                         .webhook = server_audit_webhook(d->recorder),
                                                         .audit_content = conf_is_on(&d->conf, SETTING_AUDIT_CONTENT),
                                                         .hooks = api_service_hooks(d->manager) });
}

static void coved_open_api(struct coved *d)
{
    d->api = api_new(
        &(struct api_settings){ .ev = d->ev,
                                .gateway = d->gateway,
                                .store = d->store,
                                .manager = d->manager,
                                .pools = d->pools,
                                .executor = d->executor,
                                .tools = d->tools,
                                .script_cache = d->script_cache,
                                .secrets = d->secrets,
                                .builtin_pools = d->default_pools,
                                .nbuiltin_pools = coved_fill_default_pools(d),
                                .auth = d->auth,
                                .audit = server_audit_log(d->recorder),
                                .version = COVE_VERSION,
                                .operator_limits = &d->operator_limits,
                                .connections_per_sandbox = conf_number(&d->conf, SETTING_EGRESS_CONNS),
                                .connections_per_tenant = conf_number(&d->conf, SETTING_EGRESS_CONNS_TENANT),
                                .scratch_dir = d->paths.state_dir,
                                .login_issuer = conf_text(&d->conf, SETTING_JWT_ISSUER),
                                .login_audience = conf_text(&d->conf, SETTING_JWT_AUDIENCE),
                                .login_client = conf_text(&d->conf, SETTING_JWT_CLIENT),
                                .get_retention = coved_fill_retention,
                                .write_capabilities = coved_write_capabilities,
                                .write_metrics = coved_append_metrics,
                                .arg = d });
}

static void coved_open_mcp(struct coved *d)
{
    d->mcp = mcp_new(&(struct mcp_settings){ .ev = d->ev,
                                             .gateway = d->gateway,
                                             .auth = d->auth,
                                             .store = d->store,
                                             .manager = d->manager,
                                             .tools = d->tools,
                                             .operator_limits = &d->operator_limits,
                                             .version = COVE_VERSION,
                                             .template = conf_text(&d->conf, SETTING_MCP_TEMPLATE),
                                             .sessions_max = (uint32_t)conf_number(&d->conf, SETTING_MCP_SESSIONS),
                                             .idle_ms = conf_number(&d->conf, SETTING_MCP_IDLE),
                                             .has_fixtures = conf_is_on(&d->conf, SETTING_MCP_FIXTURES) });
}

static int coved_open_http(struct coved *d, struct err *err)
{
    struct http_settings set = {
        .tables = (const struct http_tables[]){ { api_tables, d->api }, { mcp_tables, d->mcp }, { 0 } },
        .hosts = conf_list(&d->conf, SETTING_HOSTS),
        .origins = conf_list(&d->conf, SETTING_ORIGINS),
        .ctx = d->gateway,
        .on_request = gateway_on_request,
        .on_done = coved_on_request_done,
    };

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
    set.limits.ws_frames_per_second = (unsigned)conf_number(&d->conf, SETTING_WS_RATE);
    if (http_server_new(d->ev, &set, &d->http, err) < 0)
        return -1;
    api_set_server(d->api, d->http);
    return 0;
}

/* --- start and stop --- */

static void coved_stop_loop(void *arg)
{
    struct coved *d = arg;

    ev_stop(d->ev);
}

static void coved_on_drained(void *arg)
{
    struct coved *d = arg;
    struct err why;

    ev_timer_set(d->ev, &d->end_timeout, ev_now(d->ev) + PATIENCE_NS, coved_stop_loop, d);
    if (!d->ends_sandboxes) {
        mcp_await_deletions(d->mcp, coved_stop_loop, d);
        return;
    }
    err_set(&why, ERR_SANDBOX_ENDED, "the server was stopped");
    manager_end_all(d->manager, &why, coved_stop_loop, d);
}

static void coved_on_signal(void *arg, int signo)
{
    struct coved *d = arg;

    if (signo == SIGHUP) {
        if (d->tls)
            tls_server_reload(d->tls);
        return;
    }
    if (!d->http) { /* during the start: nothing was acknowledged, and sandboxes live on */
        log_info("stopped before the server was ready");
        _exit(0);
    }
    if (d->stopping) {
        ev_stop(d->ev);
        return;
    }
    d->stopping = true;
    d->ends_sandboxes = signo == SIGINT;
    log_info("stopping: running requests have %" PRIu64 " ms to finish", conf_number(&d->conf, SETTING_DRAIN));
    mcp_end_sessions(d->mcp);
    open_streams_end_endless(d->gateway);
    if (d->tls)
        tls_server_stop_accepting(d->tls);
    http_server_drain(d->http, conf_number(&d->conf, SETTING_DRAIN), coved_on_drained, d);
}

static int coved_watch_signals(struct coved *d, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    return ev_signals(d->ev, &set, coved_on_signal, d, err);
}

static void coved_write_ready_line(const struct coved *d, const char *line)
{
    if (d->ready_fd >= 0 && fd_write_all(d->ready_fd, line, strlen(line)) < 0)
        log_warn("cannot write to descriptor %d: the reader has closed it", d->ready_fd);
}

static void coved_on_first_key(void *arg, const struct err *err, const struct store_key *row UNUSED, const char *secret)
{
    struct coved *d = arg;

    if (!err) {
        auto_free char *line = str_printf("key %s\n", secret);

        coved_write_ready_line(d, line);
        explicit_bzero(line, strlen(line));
    } else if (err->id != ERR_EXISTS) {
        log_error("cannot create the first key: %s", err->msg);
    }
    coved_write_ready_line(d, "ready\n");
}

/* The first key is sent to the process that started coved and is shown there; it must not be in a
 * log. Under a service manager there is no reader: then the local owner creates keys over the Unix
 * socket. */
static void coved_report_ready(struct coved *d)
{
    if (d->ready_fd >= 0)
        auth_key_create_first(d->auth, clock_real_ms(), coved_on_first_key, d);
}

static int coved_serve(struct coved *d, struct err *err)
{
    struct server_paths_settings w = {
        .state_dir = conf_text(&d->conf, SETTING_STATE_DIR),
        .run_dir = conf_text(&d->conf, SETTING_RUN_DIR),
        .user = "",
        .euid = geteuid(),
        .home = getenv("HOME"),
        .xdg_state = getenv("XDG_STATE_HOME"),
        .xdg_runtime = getenv("XDG_RUNTIME_DIR"),
    };

    if (coved_drop_privileges(err) < 0 || server_paths_resolve(&w, &d->paths, err) < 0 || ev_new(&d->ev, err) < 0 ||
        coved_watch_signals(d, err) < 0 || coved_read_operator_limits(d, err) < 0 ||
        coved_restrict_drivers(d, err) < 0 || coved_restrict_network(d, err) < 0 || coved_open_store(d, err) < 0 ||
        coved_open_recorder(d, err) < 0 || coved_open_auth(d, err) < 0 || coved_open_secrets(d, err) < 0 ||
        coved_open_manager(d, err) < 0)
        return -1;
    if (coved_open_wallclock(d, err) < 0)
        return -1;
    coved_open_executor(d);
    coved_open_script_cache(d);
    coved_open_tools(d);
    coved_open_gateway(d);
    coved_open_api(d);
    coved_open_mcp(d);
    if (coved_open_http(d, err) < 0 || coved_open_listeners(d, err) < 0)
        return -1;
    ev_timer_set(d->ev, &d->gc_timer, ev_now(d->ev) + GC_FIRST_NS, coved_collect_garbage, d);
    if (server_audit_is_damaged(d->recorder))
        security_events_report_damage(d->gateway);
    server_audit_record(d->recorder, "server.start", "{\"version\":\"" COVE_VERSION "\"}");
    log_info("coved %s serves %" PRIu64 " sockets, state in %s", COVE_VERSION, d->nsockets ? d->nsockets : 2,
             d->paths.state_dir);
    coved_report_ready(d);
    ev_run(d->ev);
    return 0;
}

/* Frees everything in reverse order. Sandboxes keep running. */
static void coved_done(struct coved *d)
{
    if (d->ev) {
        ev_timer_clear(d->ev, &d->gc_timer);
        ev_timer_clear(d->ev, &d->end_timeout);
    }
    tools_finish(d->tools); /* while the executor and the manager accept calls */
    executor_finish(d->executor);
    store_finish(d->store); /* while the components whose operations are pending still exist */
    manager_finish(d->manager);
    http_server_free(d->http);
    tls_server_free(d->tls);
    buf_done(&d->plain_http_answer);
    mcp_free(d->mcp);
    api_free(d->api);
    gateway_free(take_ptr(&d->gateway));
    if (d->stopping)
        server_audit_record(d->recorder, "server.stop", NULL);
    tools_free(d->tools);
    template_cache_free(d->template_cache);
    executor_free(d->executor);
    manager_free(d->manager);
    pools_free(d->pools);
    server_audit_close(d->recorder);
    auth_free(d->auth);
    store_close(d->store);
    script_cache_free(d->script_cache);
    secrets_free(d->secrets);
    ev_free(d->ev);
    server_paths_done(&d->paths);
    operator_limits_done(&d->operator_limits);
    conf_done(&d->conf);
}

static void coved_start_log(const struct conf *c)
{
    enum log_level level = LOG_INFO;
    enum log_format form = LOG_TEXT;

    (void)log_level_parse(conf_text(c, SETTING_LOG_LEVEL), &level);
    (void)log_format_parse(conf_text(c, SETTING_LOG_FORMAT), &form);
    log_setup("coved", level);
    log_set_format(form);
}

int main(int argc, char **argv)
{
    static struct coved d = { .ready_fd = -1, .tls_source = -1 };
    static struct problems pr;
    struct err err = { 0 };
    int status = 0;

    prctl(PR_SET_NAME, "coved");
    if (coved_read_settings(&d, argc, argv, &pr) < 0) {
        auto_buf out = { 0 };

        problems_print(&pr, &out);
        (void)fd_write_all(STDERR_FILENO, out.data, out.len);
        conf_done(&d.conf);
        return problems_exit(&pr);
    }
    coved_start_log(&d.conf);
    coved_count_sockets(&d);
    if (coved_serve(&d, &err) < 0) {
        const char *fix = err_fix(err.id);

        log_error("%s [%s]%s%s", err.msg, err_info(err.id)->code, fix ? "; " : "", fix ? fix : "");
        status = err_info(err.id)->exit;
    }
    coved_done(&d);
    return status;
}
