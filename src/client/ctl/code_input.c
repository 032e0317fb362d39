/* Reads what a request runs: code from -c, from a file or from standard input, and the input of the
 * program. Both are sent with the request, so they are read to their end first. Standard input is
 * read only if the user asks for it: an inherited open pipe would block. */
#include "client/ctl/ctl_internal.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "client/cli/report.h"
#include "policy/languages.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#define CODE_MAX (1 * MIB)
#define INPUT_MAX (1 * MIB)
#define PATIENCE_MS 2000

static int ctl_read_all(int fd, const char *what, size_t max, struct buf *ret, struct err *err)
{
    char piece[65536];
    ssize_t n;

    while ((n = read(fd, piece, sizeof(piece))) > 0 || (n < 0 && errno == EINTR)) {
        if (n > 0)
            buf_add(ret, piece, (size_t)n);
        if (ret->len > max)
            return err_set(err, ERR_LIMIT,
                           "%.120s: larger than %zu KiB; use 'cove sandbox create' and 'cove cp' instead", what,
                           max / 1024);
    }
    return n < 0 ? err_sys(err, ERR_SYS, "%.160s", what) : 0;
}

static int ctl_read_stdin(const struct ctl *c, const char *what, size_t max, struct buf *ret, struct err *err)
{
    struct pollfd in = { .fd = STDIN_FILENO, .events = POLLIN };

    if (!c->quiet && !isatty(STDIN_FILENO) && poll(&in, 1, PATIENCE_MS) == 0)
        report_note("waiting for the end of standard input, which is %s", what);
    return ctl_read_all(STDIN_FILENO, what, max, ret, err);
}

int ctl_read_path(const char *path, size_t max, struct buf *ret, struct err *err)
{
    auto_fd int fd = open(path, O_RDONLY | O_CLOEXEC);

    if (fd < 0)
        return err_sys(err, errno == ENOENT ? ERR_MISSING : ERR_SYS, "%.160s", path);
    return ctl_read_all(fd, path, max, ret, err);
}

static int ctl_put_text(json_t *body, const char *key, const struct buf *text, struct err *err)
{
    json_t *v = json_stringn(text->data ? text->data : "", text->len);

    if (!v)
        return err_set(err, ERR_INVALID, "%s: not UTF-8", key);
    json_object_set_new(body, key, v);
    return 0;
}

/* An unknown extension is an error; it does not default to Python. */
static int ctl_language_of(const char *path, const char **ret, struct err *err)
{
    const struct language *language = language_by_extension(path);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *dot = strrchr(name, '.');

    if (!language && dot && dot != name)
        return err_set(err, ERR_USAGE,
                       "%.120s: unknown extension %.20s; add --runtime python, node or bash, or run a program "
                       "with '-- COMMAND'",
                       path, dot);
    *ret = language ? language->name : NULL;
    return 0;
}

static int ctl_put_file(struct ctl *c, const char *path, json_t *body, struct buf *text, struct err *err)
{
    const char *language = NULL;

    if (access(path, F_OK) < 0 && errno == ENOENT)
        return err_set(err, ERR_MISSING, "no file '%.120s'; give code with -c and a command after --", path);
    if (ctl_read_path(path, CODE_MAX, text, err) < 0 ||
        (!args_find(&c->args, OPT_RUNTIME) && ctl_language_of(path, &language, err) < 0))
        return -1;
    if (language)
        json_object_set_new(body, "language", json_string(language));
    return 0;
}

int ctl_put_code(struct ctl *c, const char *path, json_t *body, struct err *err)
{
    const struct arg *code = args_find(&c->args, OPT_CODE);
    auto_buf text = { 0 };

    ctl_set_text(c, OPT_RUNTIME, body, "language");
    if (code && path)
        return err_set(err, ERR_USAGE, "-c CODE and '%.60s' exclude each other; give one of them", path);
    if (!code && !path)
        return err_set(err, ERR_USAGE, "no code; give it with -c CODE, as a FILE, or write - for standard input");
    if (path && str_eq(path, "-") && args_find(&c->args, OPT_STDIN))
        return err_set(err, ERR_USAGE, "- and --stdin exclude each other: standard input is the code");
    if (code)
        buf_adds(&text, code->value);
    else if (str_eq(path, "-") ? ctl_read_stdin(c, "the code", CODE_MAX, &text, err) < 0
                               : ctl_put_file(c, path, body, &text, err) < 0)
        return -1;
    return ctl_put_text(body, "code", &text, err);
}

int ctl_put_stdin(const struct ctl *c, json_t *body, struct err *err)
{
    auto_buf in = { 0 };

    if (!args_find(&c->args, OPT_STDIN))
        return 0;
    if (ctl_read_stdin(c, "the input of the program", INPUT_MAX, &in, err) < 0)
        return -1;
    return in.len ? ctl_put_text(body, "stdin", &in, err) : 0;
}
