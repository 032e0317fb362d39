/* Bubblewrap needs of a host its program, and user namespaces of plain users. */
#include "sandbox/jailed/jailed.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "policy/driver.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* A kernel setting that stops Bubblewrap, which makes its user namespace without privileges. */
struct bwrap_sysctl {
    const char *path;  /* below the root */
    const char *stops; /* the value that forbids unprivileged user namespaces */
    const char *why;
    const char *fix;
};

static const struct bwrap_sysctl bwrap_sysctls[] = {
    { "/proc/sys/kernel/unprivileged_userns_clone", "0",
      "the kernel forbids user namespaces of plain users (kernel.unprivileged_userns_clone is 0)",
      "sysctl -w kernel.unprivileged_userns_clone=1" },
    { "/proc/sys/user/max_user_namespaces", "0",
      "the kernel permits no user namespaces (user.max_user_namespaces is 0)",
      "sysctl -w user.max_user_namespaces=15000" },
    { "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1",
      "AppArmor restricts user namespaces of plain users, and no AppArmor profile permits them to bwrap",
      "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or load an AppArmor profile for bwrap" },
};

static bool bwrap_sysctl_stops(const char *root, const struct bwrap_sysctl *s)
{
    char path[PATH_MAX], text[16] = "";

    snprintf(path, sizeof(path), "%s%s", root, s->path);
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : fd_read_full(fd, text, sizeof(text) - 1);
    if (n < 0)
        return false; /* a kernel without the setting does not restrict */
    text[strcspn(text, "\n")] = '\0';
    return str_eq(text, s->stops);
}

static bool bwrap_has_apparmor_profile(const char *root)
{
    static const char *const profiles[] = { "/etc/apparmor.d/bwrap", "/etc/apparmor.d/bwrap-userns-restrict",
                                            "/etc/apparmor.d/usr.bin.bwrap", NULL };
    char path[PATH_MAX];

    for (const char *const *p = profiles; *p; p++) {
        snprintf(path, sizeof(path), "%s%s", root, *p);
        if (access(path, F_OK) == 0)
            return true;
    }
    return false;
}

void bwrap_availability_check(const char *root, struct driver_availability *ret)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s" DRIVER_BWRAP_PROGRAM, root);
    if (access(path, X_OK) < 0) {
        (void)str_copy(ret->why, sizeof(ret->why), "Bubblewrap is not installed (" DRIVER_BWRAP_PROGRAM ")");
        (void)str_copy(ret->fix, sizeof(ret->fix), "apt install bubblewrap");
        return;
    }
    (void)str_copy(ret->path, sizeof(ret->path), DRIVER_BWRAP_PROGRAM);
    for (size_t i = 0; i < ARRAY_LEN(bwrap_sysctls); i++) {
        const struct bwrap_sysctl *s = &bwrap_sysctls[i];

        if (!bwrap_sysctl_stops(root, s) || (str_eq(s->stops, "1") && bwrap_has_apparmor_profile(root)))
            continue;
        (void)str_copy(ret->why, sizeof(ret->why), s->why);
        (void)str_copy(ret->fix, sizeof(ret->fix), s->fix);
        return;
    }
    ret->available = true;
}
