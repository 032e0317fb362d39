/* A path is used as it is written: there is no percent-encoding, and "//" and "?" are refused,
 * because other programs give them a meaning that differs from program to program. */
#include "store/store_url.h"

#include "core/base/mem.h"
#include "core/base/str.h"

#define STORE_URL_FILE "cove.db"

static int store_url_parse_sqlite(const char *path, const char *state_dir, struct store_url *ret, struct err *err)
{
    size_t len = strlen(path);

    if (str_starts(path, "//"))
        return err_set(err, ERR_CONF_VALUE, "store.url: 'sqlite:%.120s' begins with //; write sqlite:PATH", path);
    if (strchr(path, '?'))
        return err_set(err, ERR_CONF_VALUE, "store.url: 'sqlite:%.120s' has parameters; write sqlite:PATH", path);
    if (len > 0 && path[len - 1] == '/')
        return err_set(err, ERR_CONF_VALUE, "store.url: 'sqlite:%.120s' is a directory; add the name of a file", path);
    *ret = (struct store_url){ STORE_SCHEME_SQLITE,
                               path[0] == '/' ? str_dup(path)
                                              : str_printf("%s/%s", state_dir, *path ? path : STORE_URL_FILE) };
    return 0;
}

int store_url_parse(const char *text, const char *state_dir, struct store_url *ret, struct err *err)
{
    const char *place = text;

    if (str_eat(&place, "sqlite:"))
        return store_url_parse_sqlite(place, state_dir, ret, err);
    if (str_starts(text, "postgres:") || str_starts(text, "postgresql:"))
        return err_set(err, ERR_NOT_SUPPORTED_YET,
                       "store.url: this cove has no PostgreSQL support yet; use sqlite:PATH");
    if (!strchr(text, ':'))
        return err_set(err, ERR_CONF_VALUE, "store.url: '%.120s' has no scheme; write sqlite:PATH", text);
    return err_set(err, ERR_CONF_VALUE, "store.url: unknown scheme '%.*s'; use sqlite:PATH",
                   (int)min_u64(strcspn(text, ":"), 40), text);
}

void store_url_done(struct store_url *url)
{
    free(url->file);
    *url = (struct store_url){ 0 };
}
