/* The file rules are the second wall behind the read-only root: they hold even where a mount flag or an owner is wrong.
 * So they are as narrow as programs allow, and what they leave out is part of the design:
 *
 * - No rule lets a file be opened below "/" itself. A directory that appears in the root without a rule of its own can
 *   be seen and listed, but nothing in it can be opened. "/" has FILE_LIST because Landlock cannot grant the listing of
 *   one directory without its subtree, and `ls /` must work; the names in the root are ours and tell nothing.
 * - /.cove has no rule: the runtime that is PID 1 was executed before the rules came up, and nobody opens it again.
 * Only the kernels in it are read, by the interpreters that run them.
 * - /proc is for reading. Writing one's own comm, oom_score_adj or timer slack fails with EACCES, which programs bear;
 *   in return a mistake in the masks of /proc does not open sysrq-trigger or /proc/sys to them.
 * - /dev is for using devices, and /dev/pts needs no more (a terminal's slave appears by itself); only /dev/shm is a
 *   place to make files.
 * - /mnt and /skills are never writable, whatever is bound there.
 *
 * The environment is what an ordinary user of a small machine has, the same on every host. TERM is not in it: who gives
 * a program a terminal says which. Nothing of a language (PYTHONDONTWRITEBYTECODE and the like) is set, because code
 * should behave as its author saw it behave elsewhere. */
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
    { FILE_READ_EXEC, "/bin", true }, /* links into /usr on merged systems, directories on others */
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

static const char *const standard_environment[] = {
    "PATH=/usr/local/bin:/usr/bin:/bin",
    "HOME=/workspace",
    "USER=cove",
    "LOGNAME=cove",
    "SHELL=/bin/sh",
    "LANG=C.UTF-8",
    "TMPDIR=/tmp",
    NULL,
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

/* Inside, the same places exist at every level, so all of them share one set of rules. */
const struct file_rule *level_file_rules(enum level l UNUSED, size_t *count)
{
    *count = ARRAY_LEN(standard_rules);
    return standard_rules;
}

const char *const *level_environment(enum level l UNUSED)
{
    return standard_environment;
}
