/* Paths and patterns of a run's files, as a client writes them: the first line is the path, the
 * second a name in a directory. An accepted path stays below /workspace or /tmp, and the parts
 * of a split pattern are the pattern again. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/execute/executor.h"
#include "service/execute/run_path.h"

static void need(bool holds)
{
    if (!holds)
        abort();
}

static void check_inside(const char *path)
{
    need(str_starts(path, "/workspace/") || str_starts(path, "/tmp/"));
    need(!strstr(path, "//") && !strstr(path, "/../") && !strstr(path, "/./"));
    need(!str_ends(path, "/") && !str_ends(path, "/..") && !str_ends(path, "/."));
}

static void check_split(const char *path, const char *name)
{
    auto_free char *dir = NULL;
    const char *rest = NULL, *left = NULL;

    if (!run_path_split(path, &dir, &rest)) {
        need(!run_path_has_pattern(path, strlen(path)));
        return;
    }
    auto_free char *whole = str_printf("%s/%s", str_eq(dir, "/") ? "" : dir, rest);
    need(str_eq(whole, path) && !run_path_has_pattern(dir, strlen(dir)));
    if (run_path_matches(rest, name, &left))
        need(left > rest && left <= rest + strlen(rest));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = str_dup_n((const char *)data, strnlen((const char *)data, size));
    auto_free char *path = NULL;
    struct err err = { 0 };
    char *name = strchr(text, '\n');

    if (name)
        *name++ = '\0';
    if (run_path_resolve(text, "files", &path, &err) < 0) {
        need(err.id == ERR_INVALID && !path);
        return 0;
    }
    need(strlen(path) <= RUN_PATH_MAX + sizeof("/workspace/"));
    check_inside(path);
    check_split(path, name ? name : "");
    return 0;
}
