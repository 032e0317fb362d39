#include "policy/languages.h"

#include "core/base/buf.h"
#include "core/base/str.h"
#include "core/base/suggest.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

/* clang-format off */
#define LIST(...) ((const char *const[]){ __VA_ARGS__, NULL })

static const struct language language_table[] = {
    { "python", "python3", LIST("py"), LIST(".py"), PROFILE_PYTHON, "-c",
      "exec(compile(open('" LANGUAGE_CODE_FILE "', 'rb').read(), '<string>', 'exec'))", false, LIST("-"), "python3" },
    { "node", "node", LIST("nodejs", "javascript", "js"), LIST(".js", ".mjs", ".cjs"), PROFILE_NODE, "-e",
      "eval(require('fs').readFileSync('" LANGUAGE_CODE_FILE "', 'utf8'))", false, LIST("-"), "nodejs" },
    { "bash", "bash", LIST("shell"), LIST(".bash"), PROFILE_SHELL, "-c", ". " LANGUAGE_CODE_FILE, true, LIST("-s", "--"), "bash" },
    { "sh", "sh", LIST("dash"), LIST(".sh"), PROFILE_SHELL, "-c", ". " LANGUAGE_CODE_FILE, true, LIST("-s", "--"), "dash" },
};

const char *const language_dirs[] = { "/usr/local/bin", "/usr/bin", "/bin", NULL };
/* clang-format on */

const struct language *languages_all(size_t *count)
{
    *count = ARRAY_LEN(language_table);
    return language_table;
}

const struct language *language_by_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(language_table); i++) {
        const struct language *l = &language_table[i];

        if (str_eq(name, l->name) || str_eq(name, l->program))
            return l;
        for (size_t k = 0; l->aliases[k]; k++)
            if (str_eq(name, l->aliases[k]))
                return l;
    }
    return NULL;
}

const struct language *language_by_extension(const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(language_table); i++)
        for (size_t k = 0; language_table[i].extensions[k]; k++)
            if (str_ends(path, language_table[i].extensions[k]))
                return &language_table[i];
    return NULL;
}

static bool language_is_version_suffix(const char *s)
{
    return s[strspn(s, "0123456789.")] == '\0';
}

const struct language *language_by_program(const char *program)
{
    const char *slash = strrchr(program, '/');
    const char *base = slash ? slash + 1 : program;

    if (str_eq(base, "nodejs"))
        base = "node";
    if (str_eq(base, "dash"))
        base = "sh";
    for (size_t i = 0; i < ARRAY_LEN(language_table); i++)
        if (str_starts(base, language_table[i].name) &&
            language_is_version_suffix(base + strlen(language_table[i].name)))
            return &language_table[i];
    return NULL;
}

enum profile language_profile(const char *program)
{
    const struct language *rt = language_by_program(program);

    return rt ? rt->profile : PROFILE_BASE;
}

bool language_path_is_shared(const char *real)
{
    static const char *const shared[] = { "/usr/",   "/bin/",    "/sbin/", "/lib/", "/lib32/",
                                          "/lib64/", "/libx32/", "/opt/",  NULL };

    for (size_t i = 0; shared[i]; i++)
        if (str_starts(real, shared[i]))
            return true;
    return false;
}

int language_unknown_error(const char *what, const char *name, struct err *err)
{
    struct suggest near;
    auto_buf names = { 0 };

    suggest_init(&near, name);
    for (size_t i = 0; i < ARRAY_LEN(language_table); i++) {
        const char *before = i == 0 ? "" : i + 1 < ARRAY_LEN(language_table) ? ", " : " or ";

        suggest_offer(&near, language_table[i].name);
        buf_addf(&names, "%s%s", before, language_table[i].name);
    }
    if (near.best)
        err_set(err, ERR_RUNTIME_MISSING, "%s: unknown runtime '%.40s'; did you mean %s?", what, name, near.best);
    else
        err_set(err, ERR_RUNTIME_MISSING, "%s: unknown runtime '%.40s'; use %s", what, name, names.data);
    return -1;
}

int language_find_program(const struct language *rt, const char *const *dirs, char *path, size_t cap, struct err *err)
{
    char real[PATH_MAX], outside[PATH_MAX] = "";

    for (size_t i = 0; dirs[i]; i++) {
        int n = snprintf(path, cap, "%s/%s", dirs[i], rt->program);

        if (n < 0 || (size_t)n >= cap || access(path, X_OK) < 0)
            continue;
        if (realpath(path, real) && language_path_is_shared(real))
            return 0;
        if (!outside[0])
            snprintf(outside, sizeof(outside), "%.100s links to %.100s", path, real);
    }
    if (outside[0])
        return err_set(err, ERR_RUNTIME_MISSING,
                       "runtime %s: %.180s, which sandboxes do not see; install it below /usr, /bin, /lib or /opt",
                       rt->name, outside);
    return err_set(err, ERR_RUNTIME_MISSING,
                   "runtime %s: no %s in /usr/local/bin, /usr/bin or /bin; apt-get install %s", rt->name, rt->program,
                   rt->package);
}
