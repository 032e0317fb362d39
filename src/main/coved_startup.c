/* The start of coved: its settings and sockets, and the privileges it drops before it serves
 * requests.
 *
 * Settings come from the command line, or complete from a supervisor that read them first, so that
 * the two never disagree about a file that changed in between. Sockets come from a supervisor or
 * from a service manager. */
#include "main/coved.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/doc/doc.h"
#include "main/serve/no_fork_filter.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>

struct coved_options {
    const char *config_fd, *listen_fds, *ready_fd, *tls_fd;
};

static int coved_read_fd_number(const char *name, const char *text, uint64_t *ret, struct err *err)
{
    if (text && !str_to_u64(text, 1024, ret))
        return err_set(err, ERR_USAGE, "%s: '%.20s' is not a number from 0 to 1024", name, text);
    return 0;
}

/* Reads the complete settings from a supervisor. The file offset is shared with earlier readers of
 * the descriptor, so the read position is explicit. */
static int coved_read_inherited_config(struct coved *d, int fd, struct problems *pr)
{
    auto_free char *text = mem_alloc(DOC_BYTES_MAX + 1);
    ssize_t n = pread(fd, text, DOC_BYTES_MAX, 0);

    pr->file = "configuration of the supervisor";
    if (n >= 0)
        return conf_read(&d->conf, text, (size_t)n, pr);
    problems_add(pr, ERR_SYS, 0, 0, NULL, "cannot read descriptor %d", fd);
    return -1;
}

int coved_read_settings(struct coved *d, int argc, char **argv, struct problems *pr)
{
    struct coved_options w = { 0 };
    const struct conf_option own[] = { { "--config-fd", &w.config_fd, NULL },
                                       { "--listen-fds", &w.listen_fds, NULL },
                                       { "--ready-fd", &w.ready_fd, NULL },
                                       { "--tls-fd", &w.tls_fd, NULL } };
    uint64_t config = 0, ready = 0, tls = 0;
    struct err err = { 0 };

    conf_init(&d->conf);
    conf_read_own_flags(argc, argv, own, ARRAY_LEN(own));
    if (!w.config_fd && conf_read_command_line(&d->conf, argc, argv, environ, own, ARRAY_LEN(own), pr) < 0)
        return -1;
    if (coved_read_fd_number("--config-fd", w.config_fd, &config, &err) < 0 ||
        coved_read_fd_number("--listen-fds", w.listen_fds, &d->nsockets, &err) < 0 ||
        coved_read_fd_number("--ready-fd", w.ready_fd, &ready, &err) < 0 ||
        coved_read_fd_number("--tls-fd", w.tls_fd, &tls, &err) < 0) {
        problems_add(pr, err.id, 0, 0, NULL, "%s", err.msg);
        return -1;
    }
    d->ready_fd = ready ? (int)ready : -1;
    d->tls_source = tls ? (int)tls : -1;
    if (!config)
        return 0;
    if (coved_read_inherited_config(d, (int)config, pr) < 0)
        return -1;
    pr->file = NULL;
    return conf_read_flags(&d->conf, argc, argv, own, ARRAY_LEN(own), pr);
}

/* A service manager may pass sockets with its own protocol: LISTEN_FDS sockets, beginning at
 * descriptor 3, for the process LISTEN_PID. */
void coved_count_sockets(struct coved *d)
{
    const char *pid = getenv("LISTEN_PID"), *n = getenv("LISTEN_FDS");
    uint64_t for_whom = 0;

    if (!d->nsockets && pid && n && str_to_u64(pid, INT32_MAX, &for_whom) && for_whom == (uint64_t)getpid())
        (void)str_to_u64(n, 16, &d->nsockets);
    for (uint64_t i = 0; i < d->nsockets; i++)
        (void)fcntl(COVED_FIRST_SOCKET + (int)i, F_SETFD, FD_CLOEXEC);
}

/* --- privileges --- */

static int coved_drop_capabilities(void)
{
    struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct none[2] = { { 0 } }, held[2] = { { 0 } };

    (void)prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
    if (syscall(SYS_capget, &head, held) == 0 && memcmp(held, none, sizeof(none)) == 0)
        return 0; /* the filter of a service manager may refuse capset, and there is nothing to drop */
    return (int)syscall(SYS_capset, &head, none);
}

/* The leak checker of a sanitized build is a process that reads the memory of this one. */
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ALLOW_LEAK_CHECKER 1
#endif
#endif
#ifndef ALLOW_LEAK_CHECKER
#define ALLOW_LEAK_CHECKER 0
#endif

int coved_drop_privileges(struct err *err)
{
    struct rlimit files;

    if (geteuid() == 0)
        return err_set(err, ERR_DENIED,
                       "coved never runs as root; start it with `cove serve`, which gives it its own user");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || coved_drop_capabilities() < 0 ||
        prctl(PR_SET_DUMPABLE, ALLOW_LEAK_CHECKER, 0, 0, 0) < 0)
        return err_sys(err, ERR_SYS, "cannot drop privileges");
    if (no_fork_filter_install(ALLOW_LEAK_CHECKER, err) < 0)
        return -1;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &files);
    }
    umask(077);
    return 0;
}

static void coved_fill_default_pool(struct store_pool *ret, const char *name, uint64_t max)
{
    *ret = pool_defaults;
    ret->max = max_u64(max, 2);
    (void)str_copy(ret->name, sizeof(ret->name), name);
    (void)str_copy(ret->template, sizeof(ret->template), name);
}

/* The default pools are empty until the first request: an unused server costs nothing, and a used
 * server soon has as many members ready as clients request. Four members per processor can be
 * refilled in time; 1 % of the memory, at 4 MiB per member, is negligible. The programs of the
 * pool snippet are short, so half of that is enough. */
size_t coved_fill_default_pools(struct coved *d)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN), pages = sysconf(_SC_PHYS_PAGES);
    uint64_t most = max_u64(cores > 0 ? (uint64_t)cores * 4 : 0, 8);
    uint64_t room = (pages > 0 ? (uint64_t)pages : 0) * (uint64_t)sysconf(_SC_PAGESIZE) / 100 / (4 * MIB);

    if (str_eq(conf_text(&d->conf, SETTING_POOLS_DEFAULT), "off"))
        return 0;
    coved_fill_default_pool(&d->default_pools[0], "python", min_u64(room, most));
    coved_fill_default_pool(&d->default_pools[1], "snippet", min_u64(room, most) / 2);
    return ARRAY_LEN(d->default_pools);
}

int coved_restrict_drivers(struct coved *d, struct err *err)
{
    const char *const *names = conf_list(&d->conf, SETTING_DRIVERS);
    uint32_t allowed = 0;
    enum driver_id driver;

    for (size_t i = 0; names[i]; i++) {
        if (!driver_parse(names[i], &driver))
            return driver_unknown_error("drivers.allowed", names[i], err);
        allowed |= DRIVER_BIT(driver);
    }
    d->operator_limits.forbidden_drivers |= DRIVERS_ALL & ~allowed;
    if (d->operator_limits.forbidden_drivers == DRIVERS_ALL)
        return err_set(err, ERR_CONF_VALUE, "drivers.allowed: no driver is left that the operator limits allow too");
    return 0;
}

int coved_restrict_network(struct coved *d, struct err *err)
{
    const char *const *ranges = conf_list(&d->conf, SETTING_EGRESS_OPEN);
    struct operator_limits *limits = &d->operator_limits;
    struct ip_prefix prefix;

    limits->nopen_ranges = 0; /* those of the floor are for `cove run` */
    for (size_t i = 0; ranges[i]; i++) {
        if (!ip_prefix_parse(ranges[i], strlen(ranges[i]), &prefix))
            return err_set(err, ERR_CONF_VALUE,
                           "egress.openRanges: '%.60s' is not an address or a network such as 10.1.0.0/16", ranges[i]);
        limits->open_ranges = mem_resize(limits->open_ranges, limits->nopen_ranges + 1, sizeof(*limits->open_ranges));
        limits->open_ranges[limits->nopen_ranges++] = prefix;
    }
    limits->forbids_network = limits->forbids_network || !conf_is_on(&d->conf, SETTING_EGRESS);
    return 0;
}
