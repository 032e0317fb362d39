/* cove-serve - `cove serve`: starts the monitor, the egress proxy, the jailer and coved, and keeps
 * them running.
 *
 * It reads the configuration, creates the directories, opens the sockets and waits. It is the only
 * one of these processes that keeps all its privileges, so it does nothing else: it never processes
 * a client's request or a byte from a sandbox. */
#include "core/base/buf.h"
#include "core/base/err_print.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "client/cli/help.h"
#include "main/conf/conf.h"
#include "core/ev/ev.h"
#include "main/serve/server_paths.h"
#include "main/serve/sockets.h"
#include "main/serve/supervisor.h"
#include "policy/ip_address.h"
#include "server/tls/pem_source.h"
#include "store/store_url.h"

#include "cove_version.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>

/* The TCP socket (unless listen is off), the Unix socket, the configuration, and with TLS the
 * socket for its files. */
#define COVED_FDS 4

struct serve_process {
    struct ev *ev;
    struct conf conf;
    struct server_paths paths;
    struct store_url store_url;
    struct supervisor *supervisor;
    char *cove_path, *coved_path;
    char *egress_path;        /* NULL: sandboxes get no network */
    const char *cove_command; /* as the user types it */
    int fds[COVED_FDS];
    size_t nfds, nsockets;
    int pem_sock; /* our end of the socket that passes the TLS files; -1: no TLS */
    struct pem_source pem_source;
    char *url;
    char key[128]; /* the first key, until it was shown */
    int signals;
};

static int serve_fail(const struct err *err)
{
    auto_buf out = { 0 };

    err_print(&out, err);
    (void)fd_write_all(STDERR_FILENO, out.data, out.len);
    return err_info(err->id)->exit;
}

static int serve_print(const struct buf *out)
{
    return fd_write_all(STDOUT_FILENO, out->data, out->len) < 0 ? 125 : 0;
}

/* --- programs, sockets and directories --- */

/* In a build tree all programs are in one directory; in an installation this program is in
 * PREFIX/libexec/cove and cove in PREFIX/bin. */
static int serve_find_programs(struct serve_process *s, struct err *err)
{
    static const char *const places[] = { "cove", "../../bin/cove" };
    char dir[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", dir, sizeof(dir) - 1);

    dir[n < 0 ? 0 : n] = '\0';
    char *slash = strrchr(dir, '/');
    if (slash)
        *slash = '\0';
    s->coved_path = str_printf("%s/coved", dir);
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        free(s->cove_path);
        s->cove_path = str_printf("%s/%s", dir, places[i]);
        if (access(s->cove_path, X_OK) == 0 && access(s->coved_path, X_OK) == 0) {
            s->cove_command = i == 0 ? s->cove_path : "cove"; /* an installed cove is in PATH */
            s->egress_path = conf_number(&s->conf, SETTING_EGRESS) ? str_printf("%s/cove-egress", dir) : NULL;
            return 0;
        }
    }
    return err_set(err, ERR_NO_RUNTIME_FILE, "cannot find the cove and coved programs that belong to %.120s", dir);
}

static void serve_check_egress(struct serve_process *s)
{
    if (!s->egress_path || access(s->egress_path, X_OK) == 0)
        return;
    log_warn("%.200s: %s; sandboxes with a network are refused", s->egress_path, strerror(errno));
    free(take_ptr(&s->egress_path));
}

/* "10.1.0.0/16,192.168.1.7" */
static char *serve_join_list(const struct serve_process *s, enum conf_setting which)
{
    auto_buf out = { 0 };

    for (const char *const *text = conf_list(&s->conf, which); *text; text++)
        buf_addf(&out, "%s%s", out.len ? "," : "", *text);
    return str_dup(out.len ? out.data : "");
}

/* coved may not be allowed to read the file, and must not see a different version of it. */
static int serve_pass_configuration(struct serve_process *s, struct err *err)
{
    auto_buf text = { 0 };
    int fd = memfd_create("cove.yaml", MFD_CLOEXEC);

    conf_print(&s->conf, &text);
    if (fd < 0 || fd_write_all(fd, text.data, text.len) < 0)
        return err_sys(err, ERR_SYS, "cannot pass on the configuration");
    s->fds[s->nfds++] = fd;
    return 0;
}

static bool serve_has_tls(const struct serve_process *s)
{
    return *conf_text(&s->conf, SETTING_TLS_CERT);
}

static int serve_open_sockets(struct serve_process *s, struct err *err)
{
    const char *listen = conf_text(&s->conf, SETTING_LISTEN);

    if (!str_eq(listen, "off")) {
        if (sockets_listen_tcp(listen, &s->fds[s->nfds], err) < 0)
            return -1;
        auto_free char *name = sockets_local_address(s->fds[s->nfds++]);
        s->url = str_printf("%s://%s", serve_has_tls(s) ? "https" : "http", name);
    }
    if (sockets_listen_unix(s->paths.api_socket, geteuid() == 0 ? 0666 : 0600, &s->fds[s->nfds], err) < 0)
        return -1;
    s->nsockets = ++s->nfds;
    return 0;
}

/* coved may not be allowed to read the private key either, and requests it at each start. */
static int serve_open_pem_socket(struct serve_process *s, struct err *err)
{
    int pair[2];

    if (!serve_has_tls(s) || !s->url)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
        return err_sys(err, ERR_SYS, "socketpair");
    s->pem_sock = pair[0];
    s->fds[s->nfds++] = pair[1];
    return 0;
}

static int serve_resolve_paths(const struct serve_process *s, struct server_paths *ret, struct err *err)
{
    struct server_paths_settings w = {
        .state_dir = conf_text(&s->conf, SETTING_STATE_DIR),
        .run_dir = conf_text(&s->conf, SETTING_RUN_DIR),
        .user = conf_text(&s->conf, SETTING_USER),
        .euid = geteuid(),
        .home = getenv("HOME"),
        .xdg_state = getenv("XDG_STATE_HOME"),
        .xdg_runtime = getenv("XDG_RUNTIME_DIR"),
    };

    return server_paths_resolve(&w, ret, err);
}

static int serve_prepare(struct serve_process *s, int *lock, struct err *err)
{
    if (geteuid() != 0 && conf_number(&s->conf, SETTING_ENFORCED)) /* such a server would refuse every sandbox */
        return err_set(err, ERR_WALL_MISSING,
                       "a server that root did not start cannot give sandboxes every wall and limit; start it as root, "
                       "or with --limits-enforced false to accept weaker ones");
    if (serve_find_programs(s, err) < 0)
        return -1;
    serve_check_egress(s);
    if (serve_resolve_paths(s, &s->paths, err) < 0 ||
        store_url_parse(conf_text(&s->conf, SETTING_STORE_URL), s->paths.state_dir, &s->store_url, err) < 0 ||
        server_paths_create(&s->paths, s->store_url.file, err) < 0 || server_paths_lock(&s->paths, lock, err) < 0 ||
        serve_open_sockets(s, err) < 0 || serve_pass_configuration(s, err) < 0 || serve_open_pem_socket(s, err) < 0)
        return -1;
    return 0;
}

/* --- running --- */

static void serve_on_line(void *arg, const char *program UNUSED, const char *line)
{
    struct serve_process *s = arg;

    if (str_eat(&line, "key "))
        (void)str_copy(s->key, sizeof(s->key), line);
}

/* A new key is shown with commands to copy; later starts print how to create another key. */
static void serve_print_keys(const struct serve_process *s, struct buf *out)
{
    auto_free char *reach = s->url ? str_dup(s->url) : str_printf("--unix-socket %s http://cove", s->paths.api_socket);

    if (!s->key[0]) {
        buf_adds(out, "\nKeys: 'cove key create NAME' creates one, 'cove key ls' lists them.\n");
        return;
    }
    buf_addf(out, "  key      %s\n\nThis key has every right and will not be shown again. ", s->key);
    if (s->url)
        buf_addf(out, "Run code:\n\n  export COVE_URL=%s COVE_API_KEY=%s\n  %s execute -c 'print(6 * 7)'\n\n", s->url,
                 s->key, s->cove_command);
    buf_addf(out, "Try it:\n\n  curl -H 'Authorization: Bearer %s' --json '{\"code\": \"6 * 7\"}' %s/v1/execute\n\n",
             s->key, reach);
    buf_adds(out, "A key for a program, with fewer rights: 'cove key create NAME'.\n\n");
}

static void serve_on_ready(void *arg)
{
    struct serve_process *s = arg;
    auto_buf out = { 0 };

    buf_addf(&out, "cove %s is ready\n  address  %s\n  socket   %s\n  state    %s\n", COVE_VERSION,
             s->url ? s->url : "off", s->paths.api_socket, s->paths.state_dir);
    serve_print_keys(s, &out);
    explicit_bzero(s->key, sizeof(s->key));
    (void)serve_print(&out);
    explicit_bzero(out.data, out.len);
}

static void serve_on_signal(void *arg, int signo)
{
    struct serve_process *s = arg;

    if (signo == SIGCHLD)
        supervisor_reap(s->supervisor);
    else if (signo == SIGHUP && s->pem_sock >= 0)
        pem_source_send(&s->pem_source);
    else if (signo == SIGHUP)
        log_info("nothing to reload: this server has no certificate, and other settings change only with a restart");
    else if (s->signals++ == 0)
        supervisor_stop(s->supervisor);
    else
        supervisor_kill_last(s->supervisor); /* the second signal: do not wait any longer */
}

static int serve_watch_signals(struct serve_process *s, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    signal(SIGPIPE, SIG_IGN);
    return ev_signals(s->ev, &set, serve_on_signal, s, err);
}

static int serve_watch_pem(struct serve_process *s, struct err *err)
{
    const struct pem_paths paths = { { [PEM_CERTIFICATE] = conf_text(&s->conf, SETTING_TLS_CERT),
                                       [PEM_KEY] = conf_text(&s->conf, SETTING_TLS_KEY),
                                       [PEM_CLIENT_CA] = conf_text(&s->conf, SETTING_TLS_CLIENT_CA) } };

    return s->pem_sock < 0 ? 0 : pem_source_init(&s->pem_source, s->ev, &paths, s->pem_sock, err);
}

static int serve_run(struct serve_process *s, struct err *err)
{
    static const struct supervisor_ops ops = { .on_line = serve_on_line, .on_ready = serve_on_ready };
    char uid[16], parent[16], nfds[16], config[16], ready[16], pem[16];
    const char *level = conf_text(&s->conf, SETTING_LOG_LEVEL), *form = conf_text(&s->conf, SETTING_LOG_FORMAT);
    const char *const monitor[] = { s->cove_path,   "__monitor", "--socket",    s->paths.monitor_socket,
                                    "--parent",     parent,      "--log-level", level,
                                    "--log-format", form,        NULL };
    const char *const jailer[] = { s->cove_path,
                                   "__jailer",
                                   "--socket",
                                   s->paths.jailer_socket,
                                   "--state-dir",
                                   s->paths.run_dir,
                                   "--monitor",
                                   s->paths.monitor_socket,
                                   "--host-uid",
                                   uid,
                                   "--parent",
                                   parent,
                                   "--log-level",
                                   level,
                                   "--log-format",
                                   form,
                                   s->egress_path ? "--egress" : NULL,
                                   s->paths.egress_socket,
                                   NULL };
    const char *const coved[] = { s->coved_path,
                                  "--config-fd",
                                  config,
                                  "--listen-fds",
                                  nfds,
                                  "--ready-fd",
                                  ready,
                                  "--state-dir",
                                  s->paths.state_dir,
                                  "--run-dir",
                                  s->paths.run_dir,
                                  s->pem_sock < 0 ? NULL : "--tls-fd",
                                  pem,
                                  NULL };
    auto_free char *open_ranges = serve_join_list(s, SETTING_EGRESS_OPEN);
    auto_free char *resolvers = serve_join_list(s, SETTING_EGRESS_RESOLVERS);
    const char *egress_socket = s->paths.egress_socket, *each = conf_text(&s->conf, SETTING_EGRESS_CONNS);
    const char *tenant = conf_text(&s->conf, SETTING_EGRESS_CONNS_TENANT);
    const char *ca_file = conf_text(&s->conf, SETTING_EGRESS_CA), *ca_option = *ca_file ? "--ca-file" : NULL;
    /* clang-format off */
    const char *const egress[] = { s->egress_path, "--socket", egress_socket, "--host-uid", uid, "--parent", parent,
                                   "--log-level", level, "--log-format", form, "--open-ranges", open_ranges,
                                   "--resolvers", resolvers, "--connections", each, "--tenant-connections", tenant,
                                   ca_option, ca_file, NULL };
    /* clang-format on */
    uint64_t drain = conf_number(&s->conf, SETTING_DRAIN);
    const struct supervisor_program programs[] = {
        { .name = "cove-monitor", .argv = monitor, .ready_socket = s->paths.monitor_socket, .stop_ms = 2000 },
        { .name = "cove-egress",
          .argv = egress,
          .ready_socket = s->paths.egress_socket,
          .optional = true,
          .stop_ms = 2000 },
        { .name = "cove-jailer", .argv = jailer, .ready_socket = s->paths.jailer_socket, .stop_ms = 60000 },
        { .name = "coved",
          .argv = coved,
          .fds = s->fds,
          .nfds = s->nfds,
          .uid = s->paths.uid,
          .gid = s->paths.gid,
          .stop_signal = SIGINT, /* coved ends the sandboxes while it can still record why */
          .stop_ms = drain + 15000 },
    };

    snprintf(uid, sizeof(uid), "%u", s->paths.uid);
    snprintf(parent, sizeof(parent), "%d", getpid());
    snprintf(nfds, sizeof(nfds), "%zu", s->nsockets);
    snprintf(config, sizeof(config), "%zu", 3 + s->nsockets);
    snprintf(pem, sizeof(pem), "%zu", 4 + s->nsockets);
    snprintf(ready, sizeof(ready), "%zu", 3 + s->nfds);
    if (ev_new(&s->ev, err) < 0 || serve_watch_signals(s, err) < 0 || serve_watch_pem(s, err) < 0 ||
        supervisor_new(s->ev, programs, ARRAY_LEN(programs), &ops, s, &s->supervisor, err) < 0)
        return -1;
    ev_run(s->ev);
    int status = supervisor_status(s->supervisor);
    supervisor_free(s->supervisor);
    (void)unlink(s->paths.api_socket);
    (void)unlink(s->paths.monitor_socket);
    (void)unlink(s->paths.egress_socket);
    return status;
}

static void serve_done(struct serve_process *s)
{
    for (size_t i = 0; i < s->nfds; i++)
        close(s->fds[i]);
    pem_source_done(&s->pem_source);
    fd_close(&s->pem_sock);
    ev_free(s->ev);
    store_url_done(&s->store_url);
    server_paths_done(&s->paths);
    conf_done(&s->conf);
    free(s->cove_path);
    free(s->coved_path);
    free(s->egress_path);
    free(s->url);
}

/* --- command line --- */

static void serve_add_problem(const struct serve_process *s, enum conf_setting which, const struct err *err,
                              struct problems *pr)
{
    const struct conf_value *v = &s->conf.v[which];
    bool in_file = v->source == CONF_IN_FILE;

    pr->file = in_file ? s->conf.file : NULL;
    problems_add(pr, err->id, in_file ? v->line : 0, in_file, NULL, "%s", err->msg);
}

/* Either of the two settings requires the other. */
static void serve_check_tls(const struct serve_process *s, struct problems *pr)
{
    static const enum conf_setting all[] = { SETTING_TLS_CERT, SETTING_TLS_KEY, SETTING_TLS_CLIENT_CA };
    bool any = false, both = *conf_text(&s->conf, SETTING_TLS_CERT) && *conf_text(&s->conf, SETTING_TLS_KEY);
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (*conf_text(&s->conf, all[i]) && !any) {
            any = true;
            err_set(&err, ERR_CONF_VALUE, "%s: TLS needs both tls.certificate and tls.key", setting_info(all[i])->name);
            if (!both)
                serve_add_problem(s, all[i], &err, pr);
        }
}

static void serve_check_addresses(const struct serve_process *s, enum conf_setting which, bool prefixes,
                                  struct problems *pr)
{
    struct ip_prefix prefix;
    struct err err = { 0 };

    for (const char *const *text = conf_list(&s->conf, which); *text; text++)
        if (!(prefixes ? ip_prefix_parse(*text, strlen(*text), &prefix) : ip_endpoint_is_valid(*text))) {
            err_set(&err, ERR_CONF_VALUE, "%s: '%.60s' is not an address, alone or %s", setting_info(which)->name,
                    *text, prefixes ? "as a network such as 10.1.0.0/16" : "with a port");
            serve_add_problem(s, which, &err, pr);
        }
}

/* Checks texts beyond the table of settings, and reports errors with the line of the setting, even
 * while another server runs. */
static int serve_check_texts(const struct serve_process *s, struct problems *pr)
{
    static const enum conf_setting paths[] = { SETTING_STATE_DIR, SETTING_RUN_DIR, SETTING_EGRESS_CA };
    const char *listen = conf_text(&s->conf, SETTING_LISTEN);
    struct store_url store_url = { 0 };
    struct err err = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(paths) && pr->n == 0; i++) {
        const char *path = conf_text(&s->conf, paths[i]);

        if (*path && *path != '/') {
            err_set(&err, ERR_CONF_VALUE, "%s: '%.120s' is not an absolute path", setting_info(paths[i])->name, path);
            serve_add_problem(s, paths[i], &err, pr);
        }
    }
    if (pr->n == 0 && !str_eq(listen, "off") && sockets_check_address(listen, &err) < 0)
        serve_add_problem(s, SETTING_LISTEN, &err, pr);
    if (pr->n == 0 && store_url_parse(conf_text(&s->conf, SETTING_STORE_URL), "", &store_url, &err) < 0)
        serve_add_problem(s, SETTING_STORE_URL, &err, pr);
    store_url_done(&store_url);
    if (pr->n == 0)
        serve_check_tls(s, pr);
    serve_check_addresses(s, SETTING_EGRESS_OPEN, true, pr);
    serve_check_addresses(s, SETTING_EGRESS_RESOLVERS, false, pr);
    return pr->n ? -1 : 0;
}

static void serve_show_settings(struct serve_process *s, bool json, struct buf *out)
{
    struct err err;

    if (serve_resolve_paths(s, &s->paths, &err) == 0) {
        conf_set_effective_text(&s->conf, SETTING_STATE_DIR, s->paths.state_dir);
        conf_set_effective_text(&s->conf, SETTING_RUN_DIR, s->paths.run_dir);
    }
    (json ? conf_json : conf_print)(&s->conf, out);
}

/* Reads the command line. Returns true and sets *ret_status if the program is done, for example
 * after --help. */
static bool serve_answer_without_start(struct serve_process *s, int argc, char **argv, int *ret_status)
{
    static struct problems pr;
    bool help = false, show = false, json = false;
    const struct conf_option own[] = {
        { "--help", NULL, &help }, { "-h", NULL, &help }, { "--print-config", NULL, &show }, { "--json", NULL, &json }
    };
    auto_buf out = { 0 };
    enum log_level level = LOG_INFO;
    enum log_format form = LOG_TEXT;

    conf_init(&s->conf);
    int bad = conf_read_command_line(&s->conf, argc, argv, environ, own, ARRAY_LEN(own), &pr);
    if (!bad)
        bad = serve_check_texts(s, &pr);
    if (help) {
        help_verb(&out, cli_verb_find("serve"));
        buf_adds(&out, "\nSettings:\n");
        conf_help(&out);
        *ret_status = serve_print(&out);
    } else if (bad) {
        problems_print(&pr, &out);
        (void)fd_write_all(STDERR_FILENO, out.data, out.len);
        *ret_status = problems_exit(&pr);
    } else if (show) {
        serve_show_settings(s, json, &out);
        *ret_status = serve_print(&out);
    }
    (void)log_level_parse(conf_text(&s->conf, SETTING_LOG_LEVEL), &level);
    (void)log_format_parse(conf_text(&s->conf, SETTING_LOG_FORMAT), &form);
    log_setup("cove-serve", level);
    log_set_format(form);
    return help || bad || show;
}

int main(int argc, char **argv)
{
    static struct serve_process s = { .pem_sock = -1 };
    struct err err = { 0 };
    auto_fd int lock = -1;
    int status = -1;

    prctl(PR_SET_NAME, "cove-serve");
    if (!serve_answer_without_start(&s, argc, argv, &status)) {
        if (serve_prepare(&s, &lock, &err) == 0)
            status = serve_run(&s, &err);
        if (status < 0)
            status = serve_fail(&err);
    }
    serve_done(&s);
    return status;
}
