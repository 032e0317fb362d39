/* cove-egress - the way out of the sandboxes: an HTTP proxy, a resolver and a transparent listener.
 *
 * `cove serve` starts it as a service with a socket, `cove run` with two inherited sockets. It is
 * for programs and not for users: it takes only --name value, and reports a wrong argument in one
 * line. */
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "host/egress/egress_confine.h"
#include "host/egress/egress_control.h"

#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>

#define OPEN_RANGES_MAX 64u

struct egress_options {
    const char *socket, *host_uid, *host_user, *parent, *log_level, *log_format, *open_ranges, *resolvers, *ca_file;
    const char *connections, *tenant_connections, *jailer_fd, *engine_fd;
};

static int egress_read_options(int argc, char **argv, struct egress_options *w, struct err *err)
{
    const struct {
        const char *name;
        const char **to;
    } known[] = {
        { "--socket", &w->socket },
        { "--host-uid", &w->host_uid },
        { "--host-user", &w->host_user },
        { "--parent", &w->parent },
        { "--log-level", &w->log_level },
        { "--log-format", &w->log_format },
        { "--open-ranges", &w->open_ranges },
        { "--resolvers", &w->resolvers },
        { "--ca-file", &w->ca_file },
        { "--connections", &w->connections },
        { "--tenant-connections", &w->tenant_connections },
        { "--jailer-fd", &w->jailer_fd },
        { "--engine-fd", &w->engine_fd },
    };

    for (int i = 1; i < argc; i += 2) {
        size_t k = 0;

        while (k < ARRAY_LEN(known) && !str_eq(argv[i], known[k].name))
            k++;
        if (k == ARRAY_LEN(known) || i + 1 == argc)
            return err_set(err, ERR_USAGE, "'%.60s' is not an option, or its value is missing", argv[i]);
        *known[k].to = argv[i + 1];
    }
    if (!w->socket && (!w->jailer_fd || !w->engine_fd))
        return err_set(err, ERR_USAGE, "cove-egress needs --socket, or --jailer-fd and --engine-fd");
    return 0;
}

static int egress_read_number(const char *name, const char *s, uint32_t *ret, struct err *err)
{
    uint64_t n;

    if (!s)
        return 0;
    if (!str_to_u64(s, INT32_MAX, &n) || n == 0)
        return err_set(err, ERR_USAGE, "%s: '%.60s' is not a number", name, s);
    *ret = (uint32_t)n;
    return 0;
}

static int egress_find_host_uid(const struct egress_options *w, uid_t *ret, struct err *err)
{
    uint64_t n;

    *ret = geteuid();
    if (w->host_uid) {
        if (!str_to_u64(w->host_uid, UINT32_MAX - 1, &n))
            return err_set(err, ERR_USAGE, "--host-uid: '%.60s' is not a number", w->host_uid);
        *ret = (uid_t)n;
    } else if (w->host_user) {
        const struct passwd *pw = getpwnam(w->host_user);

        if (!pw)
            return err_set(err, ERR_USAGE, "--host-user: user '%.60s' does not exist", w->host_user);
        *ret = pw->pw_uid;
    }
    return 0;
}

static int egress_read_ranges(const char *text, struct ip_prefix *ret, size_t *ret_n, struct err *err)
{
    *ret_n = 0;
    while (text && *text) {
        size_t len = strcspn(text, ",");

        if (*ret_n == OPEN_RANGES_MAX)
            return err_set(err, ERR_USAGE, "--open-ranges: more than %u ranges", OPEN_RANGES_MAX);
        if (!ip_prefix_parse(text, len, &ret[*ret_n]))
            return err_set(err, ERR_USAGE, "--open-ranges: '%.*s' is not an address or a prefix such as 10.0.0.0/8",
                           (int)min_size(len, 60), text);
        ++*ret_n;
        text += len + (text[len] == ',');
    }
    return 0;
}

static int egress_start_log(const struct egress_options *w, struct err *err)
{
    enum log_level level = w->socket ? LOG_INFO : LOG_ERROR;
    enum log_format form = LOG_TEXT;

    if (w->log_level && !log_level_parse(w->log_level, &level))
        return err_set(err, ERR_USAGE, "--log-level: '%.60s' is not one of debug, info, warn, error", w->log_level);
    if (w->log_format && !log_format_parse(w->log_format, &form))
        return err_set(err, ERR_USAGE, "--log-format: '%.60s' is not one of text, json", w->log_format);
    log_setup("cove-egress", level);
    if (w->socket)
        log_set_format(form);
    return 0;
}

static int egress_fill_settings(const struct egress_options *w, struct egress_settings *s, struct ip_prefix *ranges,
                                struct err *err)
{
    uint32_t parent = 0, jailer_fd = 0, engine_fd = 0;

    *s = (struct egress_settings){ .socket = w->socket,
                                   .jailer_fd = -1,
                                   .engine_fd = -1,
                                   .ca_file = w->ca_file,
                                   .sandbox_connections = SHARES_SANDBOX_CONNECTIONS,
                                   .tenant_connections = 4096 };
    s->upstream.resolvers = w->resolvers ? w->resolvers : "";
    s->upstream.open = ranges;
    if (egress_find_host_uid(w, &s->host_uid, err) < 0 || egress_read_number("--parent", w->parent, &parent, err) < 0 ||
        egress_read_number("--jailer-fd", w->jailer_fd, &jailer_fd, err) < 0 ||
        egress_read_number("--engine-fd", w->engine_fd, &engine_fd, err) < 0 ||
        egress_read_number("--connections", w->connections, &s->sandbox_connections, err) < 0 ||
        egress_read_number("--tenant-connections", w->tenant_connections, &s->tenant_connections, err) < 0 ||
        egress_read_ranges(w->open_ranges, ranges, &s->upstream.nopen, err) < 0)
        return -1;
    s->parent = (pid_t)parent;
    if (!w->socket) {
        s->jailer_fd = (int)jailer_fd;
        s->engine_fd = (int)engine_fd;
        s->parent = getppid(); /* of one run */
    }
    return 0;
}

static int egress_run(const struct egress_settings *s, struct err *err)
{
    auto_(ev) ev = NULL;
    struct egress_proxy *proxy = mem_new(struct egress_proxy);
    struct egress_control *control = mem_new(struct egress_control);

    signal(SIGPIPE, SIG_IGN);
    egress_raise_descriptor_limit();
    if (ev_new(&ev, err) < 0 || egress_proxy_init(proxy, ev, s, err) < 0 ||
        egress_control_init(control, proxy, err) < 0)
        return -1;
    if (egress_confine(s->parent) < 0)
        return err_sys(err, ERR_SYS, "cannot drop privileges");
    ev_run(ev);
    egress_control_done(control);
    egress_proxy_done(proxy);
    free(control);
    free(proxy);
    return 0;
}

int main(int argc, char **argv)
{
    static struct ip_prefix ranges[OPEN_RANGES_MAX];
    struct egress_options options = { 0 };
    struct egress_settings settings;
    struct err err = { 0 };
    int status = -1;

    prctl(PR_SET_NAME, "cove-egress");
    log_setup("cove-egress", LOG_INFO);
    if (egress_read_options(argc, argv, &options, &err) == 0 && egress_start_log(&options, &err) == 0 &&
        egress_fill_settings(&options, &settings, ranges, &err) == 0)
        status = egress_run(&settings, &err);
    if (status < 0) {
        log_error("%s", err.msg);
        status = err_info(err.id)->exit;
    }
    return status;
}
