/* The file holds a secret, so it is read only if the user owns it and no other user may access
 * it. It is written under another name and renamed, so a reader finds the old or the new file,
 * never a part. */
#include "client/login.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX (64 * KIB)

char *login_path(void)
{
    const char *config = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");

    if (config && *config == '/')
        return str_printf("%s/cove/login.json", config);
    return home && *home == '/' ? str_printf("%s/.config/cove/login.json", home) : NULL;
}

static void login_wipe_text(char **text)
{
    if (*text)
        explicit_bzero(*text, strlen(*text));
    free(*text);
    *text = NULL;
}

void login_done(struct login *l)
{
    login_wipe_text(&l->url);
    login_wipe_text(&l->key);
    login_wipe_text(&l->cacert);
    login_wipe_text(&l->issuer);
    login_wipe_text(&l->client_id);
    login_wipe_text(&l->token_url);
    login_wipe_text(&l->refresh);
}

/* --- reading --- */

static char *login_text(const json_t *doc, const char *name)
{
    const char *text = json_string_value(json_object_get(doc, name));

    return text ? str_dup(text) : NULL;
}

static int login_read_fd(int fd, const char *path, struct login *ret, struct err *err)
{
    auto_free char *text = mem_alloc(FILE_MAX + 1);
    struct stat st;

    if (fstat(fd, &st) < 0)
        return err_sys(err, ERR_SYS, "%.160s", path);
    if (st.st_uid != geteuid() || (st.st_mode & 077) || !S_ISREG(st.st_mode))
        return err_set(err, ERR_DENIED,
                       "%.140s: contains a key, but other users may access it; run chmod 600, or log in again", path);
    ssize_t n = fd_read_full(fd, text, FILE_MAX);
    json_t *doc = n > 0 ? json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    explicit_bzero(text, FILE_MAX);
    *ret = (struct login){ .url = login_text(doc, "url"),
                           .key = login_text(doc, "key"),
                           .cacert = login_text(doc, "cacert"),
                           .issuer = login_text(doc, "issuer"),
                           .client_id = login_text(doc, "clientId"),
                           .token_url = login_text(doc, "tokenUrl"),
                           .refresh = login_text(doc, "refresh"),
                           .expires_ms = (uint64_t)json_integer_value(json_object_get(doc, "expiresMs")) };
    json_decref(doc);
    if (ret->url && ret->key)
        return 0;
    login_done(ret);
    return err_set(err, ERR_INVALID, "%.160s: not written by 'cove login'; log in again", path);
}

int login_read(struct login *ret, struct err *err)
{
    auto_free char *path = login_path();
    auto_fd int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;

    *ret = (struct login){ 0 };
    if (!path || (fd < 0 && errno == ENOENT))
        return err_set(err, ERR_MISSING, "not logged in; 'cove login URL' logs in");
    if (fd < 0)
        return err_sys(err, ERR_DENIED, "%.160s", path);
    return login_read_fd(fd, path, ret, err);
}

/* --- writing --- */

static void login_put_text(json_t *doc, const char *name, const char *text)
{
    if (text)
        json_object_set_new(doc, name, json_string(text));
}

static char *login_json_text(const struct login *l)
{
    json_t *doc = json_object();

    login_put_text(doc, "url", l->url);
    login_put_text(doc, "key", l->key);
    login_put_text(doc, "cacert", l->cacert);
    login_put_text(doc, "issuer", l->issuer);
    login_put_text(doc, "clientId", l->client_id);
    login_put_text(doc, "tokenUrl", l->token_url);
    login_put_text(doc, "refresh", l->refresh);
    if (l->expires_ms)
        json_object_set_new(doc, "expiresMs", json_integer((json_int_t)l->expires_ms));
    char *text = json_dumps(doc, JSON_INDENT(2));
    json_decref(doc);
    return text;
}

/* Creates the directory and its parent, which a new user may not have. */
static void login_make_parents(const char *path)
{
    for (const char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        auto_free char *dir = str_dup_n(path, (size_t)(p - path));

        (void)mkdir(dir, 0700); /* open() reports a missing directory */
    }
}

int login_write(const struct login *l, struct err *err)
{
    auto_free char *path = login_path();

    if (!path)
        return err_set(err, ERR_DENIED,
                       "the login cannot be stored: neither XDG_CONFIG_HOME nor HOME is set; set one of them");
    auto_free char *fresh = str_printf("%s.%d", path, (int)getpid());
    login_make_parents(path);
    (void)unlink(fresh);
    auto_fd int fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return err_sys(err, ERR_DENIED, "%.160s", path);
    auto_free char *text = login_json_text(l);
    bool ok = fd_write_all(fd, text, strlen(text)) == 0 && rename(fresh, path) == 0;
    explicit_bzero(text, strlen(text));
    if (ok)
        return 0;
    err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_SYS, "%.160s", path);
    (void)unlink(fresh);
    return -1;
}

int login_remove(struct err *err)
{
    auto_free char *path = login_path();

    if (path && unlink(path) == 0)
        return 0;
    if (!path || errno == ENOENT)
        return err_set(err, ERR_MISSING, "not logged in; 'cove login URL' logs in");
    return err_sys(err, ERR_DENIED, "%.160s", path);
}
