/* Messages are built in place: wrapping an error puts the context in front of its text and cuts the
 * end if the buffer is too small, because the beginning shows where the problem is. */
#include "core/base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#undef err_set /* macros under the static analyzer */
#undef err_sys
#undef err_wrap

static const struct err_info err_infos[ERR_COUNT] = {
    [ERR_NONE] = { "ok", ERR_KIND_NONE, 200, 0, ERR_HINTS_GENERIC, "", "" },
#define ERR(id, code, kind, http, exit, hints, cause, fix) \
    [ERR_##id] = { code, ERR_KIND_##kind, http, exit, ERR_HINTS_##hints, cause, fix },
#include "core/base/errors.def"
#undef ERR
};

const struct err_info *err_info(enum err_id id)
{
    if ((unsigned)id >= ERR_COUNT)
        return &err_infos[ERR_BUG];
    return &err_infos[id];
}

const char *err_cause(enum err_id id)
{
    return err_info(id)->hints == ERR_HINTS_SPECIFIC ? err_info(id)->cause : NULL;
}

const char *err_fix(enum err_id id)
{
    return err_info(id)->hints == ERR_HINTS_SPECIFIC ? err_info(id)->fix : NULL;
}

enum err_id err_by_code(const char *code)
{
    for (int id = ERR_NONE + 1; id < ERR_COUNT; id++)
        if (strcmp(err_infos[id].code, code) == 0)
            return (enum err_id)id;
    return ERR_NONE;
}

enum err_kind err_kind(const struct err *err)
{
    return err_info(err->id)->kind;
}

int err_set(struct err *err, enum err_id id, const char *fmt, ...)
{
    va_list ap;

    if (!err)
        return -1;
    err->id = id;
    err->sys = 0;
    err->limit = (struct err_limit){ 0 };
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    return -1;
}

int err_sys(struct err *err, enum err_id id, const char *fmt, ...)
{
    int saved = errno;
    va_list ap;

    if (!err)
        return -1;
    err->id = id;
    err->sys = saved;
    err->limit = (struct err_limit){ 0 };
    va_start(ap, fmt);
    int n = vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(err->msg))
        snprintf(err->msg + n, sizeof(err->msg) - (size_t)n, ": %s", strerror(saved));
    errno = saved;
    return -1;
}

int err_set_limit(struct err *err, const char *name, uint64_t used, uint64_t max)
{
    if (err)
        err->limit = (struct err_limit){ .name = name, .used = used, .requested = 1, .max = max };
    return -1;
}

int err_wrap(struct err *err, const char *fmt, ...)
{
    char old[sizeof(err->msg)];
    va_list ap;

    if (!err)
        return -1;
    memcpy(old, err->msg, sizeof(old));
    va_start(ap, fmt);
    int n = vsnprintf(err->msg, sizeof(err->msg), fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof(err->msg))
        snprintf(err->msg + n, sizeof(err->msg) - (size_t)n, ": %s", old);
    return -1;
}
