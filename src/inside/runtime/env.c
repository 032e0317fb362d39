/* Lists are short (RT_ARGS_MAX at most, usually a few dozen), so names are found by linear
 * search. */
#include "inside/runtime/env.h"

#include "core/base/mem.h"
#include "core/base/str.h"

static size_t name_len(const char *entry)
{
    const char *eq = strchr(entry, '=');

    return eq ? (size_t)(eq - entry) : strlen(entry);
}

int env_check(const char *const *env, struct err *err)
{
    for (size_t i = 0; env && env[i]; i++)
        if (!strchr(env[i], '=') || env[i][0] == '=')
            return err_set(err, ERR_INVALID, "environment entry %zu is not NAME=value: '%.40s'", i, env[i]);
    return 0;
}

static size_t env_count(const char *const *env)
{
    size_t n = 0;

    while (env && env[n])
        n++;
    return n;
}

static size_t env_put(const char **out, size_t n, const char *entry)
{
    size_t len = name_len(entry);

    for (size_t i = 0; i < n; i++)
        if (name_len(out[i]) == len && memcmp(out[i], entry, len) == 0) {
            out[i] = entry;
            return n;
        }
    out[n] = entry;
    return n + 1;
}

const char **env_merge(const char *const *base, const char *const *over)
{
    const char **out = mem_alloc((env_count(base) + env_count(over) + 1) * sizeof(char *));
    size_t n = 0;

    for (size_t i = 0; base && base[i]; i++)
        n = env_put(out, n, base[i]);
    for (size_t i = 0; over && over[i]; i++)
        n = env_put(out, n, over[i]);
    return out;
}

const char *env_get(const char *const *env, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; env && env[i]; i++)
        if (strncmp(env[i], name, len) == 0 && env[i][len] == '=')
            return env[i] + len + 1;
    return NULL;
}
