/* Patterns are those of fnmatch(3), applied part by part, so '*' never crosses a slash. A directory
 * is listed for every part that has a pattern; the caller limits how many. */
#include "service/execute/run_path.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/execute/executor.h"

#include <fnmatch.h>
#include <stdio.h>

static bool run_path_is_below(const char *path, const char *root)
{
    return str_eat(&path, root) && path[0] == '/' && path[1] != '\0';
}

static int run_path_check_parts(const char *path, const char *what, struct err *err)
{
    for (const char *p = path; *p == '/';) {
        size_t n = strcspn(++p, "/");

        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return err_set(err, ERR_INVALID, "%s: a path must not have an empty part, '.' or '..'", what);
        if (n > 255)
            return err_set(err, ERR_INVALID, "%s: a part of a path must have at most 255 bytes", what);
        p += n;
    }
    return 0;
}

int run_path_resolve(const char *path, const char *what, char **ret, struct err *err)
{
    if (!*path || strlen(path) > RUN_PATH_MAX)
        return err_set(err, ERR_INVALID, "%s: a path must have 1 to %u bytes", what, RUN_PATH_MAX);
    auto_free char *full = path[0] == '/' ? str_dup(path) : str_printf("/workspace/%s", path);
    if (run_path_check_parts(full, what, err) < 0)
        return -1;
    if (!run_path_is_below(full, "/workspace") && !run_path_is_below(full, "/tmp"))
        return err_set(err, ERR_INVALID, "%s: must be below /workspace or /tmp", what);
    *ret = take_ptr(&full);
    return 0;
}

bool run_path_has_pattern(const char *part, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (part[i] == '*' || part[i] == '?' || part[i] == '[')
            return true;
    return false;
}

bool run_path_split(const char *path, char **ret_dir, const char **ret_rest)
{
    for (const char *p = path; *p == '/';) {
        size_t n = strcspn(++p, "/");

        if (run_path_has_pattern(p, n)) {
            *ret_dir = str_dup_n(path, p - path > 1 ? (size_t)(p - path - 1) : 1);
            *ret_rest = p;
            return true;
        }
        p += n;
    }
    return false;
}

bool run_path_matches(const char *rest, const char *name, const char **ret_left)
{
    size_t n = strcspn(rest, "/");
    char part[256];

    if (n >= sizeof(part))
        return false;
    memcpy(part, rest, n);
    part[n] = '\0';
    *ret_left = rest[n] == '/' ? rest + n + 1 : rest + n;
    return fnmatch(part, name, FNM_PERIOD | FNM_NOESCAPE) == 0;
}
