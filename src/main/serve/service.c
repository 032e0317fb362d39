/* The verbs __jailer and __monitor. They are for programs and not for users: no help text lists
 * them, they take only --name value, and they report a wrong argument in one line. They are part
 * of `cove` so that the privileged process is the small static program, which links nothing but
 * libc. */
#include "main/serve/service.h"

#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/str.h"
#include "host/jailer/jailer.h"
#include "host/monitor/monitor.h"
#include "policy/denial.h"

#include <errno.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>

struct service_options {
    const char *socket, *state_dir, *monitor, *host_uid, *host_user, *parent, *log_level, *log_format, *egress;
};

static int service_read_options(int argc, char **argv, struct service_options *w, struct err *err)
{
    const struct {
        const char *name;
        const char **to;
    } known[] = {
        { "--socket", &w->socket },       { "--state-dir", &w->state_dir },   { "--monitor", &w->monitor },
        { "--host-uid", &w->host_uid },   { "--host-user", &w->host_user },   { "--parent", &w->parent },
        { "--log-level", &w->log_level }, { "--log-format", &w->log_format }, { "--egress", &w->egress },
    };

    for (int i = 1; i < argc; i += 2) {
        size_t k = 0;

        while (k < ARRAY_LEN(known) && !str_eq(argv[i], known[k].name))
            k++;
        if (k == ARRAY_LEN(known) || i + 1 == argc)
            return err_set(err, ERR_USAGE, "%s: '%.60s' is not an option, or its value is missing", argv[0], argv[i]);
        *known[k].to = argv[i + 1];
    }
    if (!w->socket)
        return err_set(err, ERR_USAGE, "%s needs --socket", argv[0]);
    return 0;
}

static int service_read_number(const char *name, const char *s, uint32_t *ret, struct err *err)
{
    uint64_t n;

    if (!s)
        return 0;
    if (!str_to_u64(s, UINT32_MAX - 1, &n))
        return err_set(err, ERR_USAGE, "%s: '%.60s' is not a number", name, s);
    *ret = (uint32_t)n;
    return 0;
}

/* For unit files, which know the user's name but not the uid. */
static int service_find_host_user(const char *name, uint32_t *ret, struct err *err)
{
    if (!name)
        return 0;
    const struct passwd *pw = getpwnam(name);
    if (!pw)
        return err_set(err, ERR_USAGE, "--host-user: user '%.60s' does not exist", name);
    *ret = pw->pw_uid;
    return 0;
}

static int service_start_log(const char *program, const struct service_options *w, struct err *err)
{
    enum log_level level = LOG_INFO;
    enum log_format form = LOG_TEXT;

    if (w->log_level && !log_level_parse(w->log_level, &level))
        return err_set(err, ERR_USAGE, "--log-level: '%.60s' is not one of debug, info, warn, error", w->log_level);
    if (w->log_format && !log_format_parse(w->log_format, &form))
        return err_set(err, ERR_USAGE, "--log-format: '%.60s' is not one of text, json", w->log_format);
    log_setup(program, level);
    log_set_format(form);
    return 0;
}

/* Without --parent, as under systemd or when started by hand, the process does not depend on a
 * parent. */
static int service_die_with_parent(pid_t parent, struct err *err)
{
    if (parent && (prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) < 0 || getppid() != parent))
        return err_set(err, ERR_LOST, "the parent process has exited");
    return 0;
}

static int service_run_jailer(const struct service_options *w, uint32_t host_uid, pid_t parent, int runtime_fd,
                              int kernels_fd, struct err *err)
{
    struct jailer_settings s = { .runtime_fd = runtime_fd,
                                 .kernels_fd = kernels_fd,
                                 .state_dir = w->state_dir ? w->state_dir : "/run/cove",
                                 .socket = w->socket,
                                 .host_uid = host_uid,
                                 .monitor = w->monitor,
                                 .egress = w->egress };

    prctl(PR_SET_NAME, "cove-jailer");
    if (service_die_with_parent(parent, err) < 0)
        return -1;
    return jailer_service(&s);
}

static int service_run_monitor(const struct service_options *w, pid_t parent)
{
    struct monitor_settings s = { .significant_args = denial_significant_args,
                                  .may_outlive_parent = parent == 0,
                                  .socket = w->socket };

    prctl(PR_SET_NAME, "cove-monitor");
    return monitor_service(&s, parent);
}

int service_main(int argc, char **argv, int (*open_runtime)(struct err *err), int (*open_kernels)(void))
{
    bool jailer = str_eq(argv[0], "__jailer");
    struct service_options w = { 0 };
    uint32_t host_uid = geteuid(), parent = 0;
    struct err err = { 0 };
    int status = -1;

    log_setup(jailer ? "cove-jailer" : "cove-monitor", LOG_INFO);
    if (service_read_options(argc, argv, &w, &err) == 0 &&
        service_read_number("--host-uid", w.host_uid, &host_uid, &err) == 0 &&
        service_find_host_user(w.host_user, &host_uid, &err) == 0 &&
        service_read_number("--parent", w.parent, &parent, &err) == 0 &&
        service_start_log(jailer ? "cove-jailer" : "cove-monitor", &w, &err) == 0) {
        auto_fd int runtime_fd = jailer ? open_runtime(&err) : -1;
        if (!jailer)
            status = service_run_monitor(&w, (pid_t)parent);
        else if (runtime_fd >= 0)
            status = service_run_jailer(&w, host_uid, (pid_t)parent, runtime_fd, open_kernels(), &err);
    }
    if (status < 0) {
        log_error("%s", err.msg);
        status = err_info(err.id)->exit;
    }
    return status;
}
