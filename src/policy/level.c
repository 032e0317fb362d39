/* The file rules are a second wall besides the read-only root: they hold even where a mount flag or
 * an owner is wrong. So they are as narrow as programs allow:
 *
 * - No rule lets a file be opened directly below "/". A directory in the root without a rule of its
 *   own can be seen and listed, but nothing in it can be opened. "/" has FILE_LIST because Landlock
 *   cannot grant listing of one directory without its subtree, and `ls /` must work; the names in
 *   the root come from cove and reveal nothing.
 * - /.cove has no rule: the runtime (PID 1) was executed before the rules took effect, and no
 *   process opens it again. Only the language kernels in it are readable, for their interpreters.
 * - /proc is read-only. Writing the own comm, oom_score_adj or timer slack fails with EACCES, which
 *   programs tolerate; in return a mistake in the masks of /proc does not open sysrq-trigger or
 *   /proc/sys.
 * - /dev is for using devices. /dev/pts needs no more (the kernel creates a terminal's slave);
 *   files can be created only in /dev/shm.
 * - /mnt and /skills are never writable, whatever is bound there.
 *
 * The environment is that of an ordinary user of a small machine, the same on every host. TERM is
 * not in it: the terminal of an execution sets it. No variables of a language (such as
 * PYTHONDONTWRITEBYTECODE) are set, because code should behave as it does elsewhere. */
#include "policy/level.h"

#include "core/base/str.h"

static const char *const level_names[] = {
    [LEVEL_STANDARD] = "standard",
    [LEVEL_HIGH] = "high",
    [LEVEL_CUSTOM] = "custom",
};

static const struct file_rule standard_rules[] = {
    { FILE_LIST, "/", false },
    { FILE_READ_EXEC, "/usr", false },
    { FILE_READ_EXEC, "/bin", true }, /* symbolic links into /usr on merged systems, else directories */
    { FILE_READ_EXEC, "/sbin", true },
    { FILE_READ_EXEC, "/lib", true },
    { FILE_READ_EXEC, "/lib32", true },
    { FILE_READ_EXEC, "/lib64", true },
    { FILE_READ_EXEC, "/libx32", true },
    { FILE_READ_EXEC, "/opt", true },
    { FILE_READ, "/etc", true },
    { FILE_READ, "/proc", false },
    { FILE_DEVICE, "/dev", false },
    { FILE_READ_WRITE, "/dev/shm", true },
    { FILE_READ_WRITE, "/tmp", false },
    { FILE_READ_WRITE, "/workspace", false },
    { FILE_READ_EXEC, "/skills", true },
    { FILE_READ_EXEC, "/mnt", true },
    { FILE_READ_EXEC, "/.cove/kernels", true },
};

#define ENVIRONMENT                                                                                                  \
    "PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/workspace", "USER=cove", "LOGNAME=cove", "SHELL=/bin/sh",            \
        "LANG=C.UTF-8", "TMPDIR=/tmp", /* the system is read-only; Debian's advice would be a virtual environment */ \
        "PIP_BREAK_SYSTEM_PACKAGES=1", "PIP_DISABLE_PIP_VERSION_CHECK=1"

/* Installers fail at once instead of trying again for a network that is not there. */
static const char *const standard_environment[] = { ENVIRONMENT, "PIP_NO_INDEX=1", "UV_OFFLINE=1",
                                                    "npm_config_offline=true", NULL };

/* The proxy listens on EGRESS_PROXY_PORT. Programs that ignore these variables reach it too, where
 * the carrier of the sandbox makes that possible. */
#define PROXY "=http://127.0.0.1:3128"
#define DIRECT "=localhost,127.0.0.1,::1"
static const char *const egress_environment[] = {
    ENVIRONMENT,         "http_proxy" PROXY, "https_proxy" PROXY, "HTTP_PROXY" PROXY,
    "HTTPS_PROXY" PROXY, "no_proxy" DIRECT,  "NO_PROXY" DIRECT,   NULL,
};

const char *level_name(enum level l)
{
    return level_names[l];
}

bool level_parse(const char *name, enum level *ret)
{
    for (unsigned i = 0; i < ARRAY_LEN(level_names); i++)
        if (str_eq(name, level_names[i])) {
            *ret = (enum level)i;
            return true;
        }
    return false;
}

/* The same paths exist at every level, so all levels share one set of rules. */
const struct file_rule *level_file_rules(enum level l UNUSED, size_t *count)
{
    *count = ARRAY_LEN(standard_rules);
    return standard_rules;
}

const char *const *level_environment(enum level l UNUSED, enum network_mode network)
{
    return network == NETWORK_NONE ? standard_environment : egress_environment;
}
