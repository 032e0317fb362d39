#include "service/tools/tool_file.h"

#include "core/base/str.h"

#include <errno.h>
#include <string.h>

#define BINARY_PROBE 8192u

const char *tool_file_kind_name(char kind)
{
    return kind == 'f'   ? "file"
           : kind == 'd' ? "directory"
           : kind == 'l' ? "link"
           : kind == 'p' ? "fifo"
           : kind == 's' ? "socket"
                         : "device";
}

bool tool_file_is_binary(const char *data, size_t len)
{
    return len > 0 && memchr(data, '\0', min_size(len, BINARY_PROBE));
}

void tool_file_fail(struct tool_file *f, const struct err *err)
{
    struct err why = *err;

    if (why.id == ERR_LIMIT && (why.sys == ENOSPC || why.sys == EDQUOT))
        why.id = ERR_SANDBOX_FULL;
    if (f->is_acquired)
        tool_call_finish_with_error(f->call, &why, f->path);
    else
        tool_call_fail(f->call, &why);
}

static void tool_file_end(struct tool_file *f, const struct files_done *d, const struct err *err)
{
    sandbox_files_free(take_ptr(&f->job));
    f->ops->on_end(f->arg, d, err);
}

static void tool_file_end_too_large(void *arg)
{
    struct tool_file *f = arg;
    char text[32];
    struct err why;

    err_set(&why, ERR_LIMIT, "%.150s: larger than %s", f->path, str_bytes(f->max, text));
    tool_file_end(f, NULL, &why);
}

static void tool_file_on_done(void *arg, const struct files_done *d, const struct err *err)
{
    struct tool_file *f = arg;

    if (!f->is_too_large)
        tool_file_end(f, d, err);
}

static void tool_file_on_start(void *arg)
{
    ((struct tool_file *)arg)->is_acquired = true;
}

static void tool_file_begin(struct tool_file *f, struct tool_call *c, char *path, enum files_operation operation,
                            const struct sandbox_files_ops *files_ops)
{
    f->call = c;
    f->is_acquired = false;
    if (f->path != path)
        free(f->path);
    f->path = path;
    f->request = (struct sandbox_files_request){ .owner = c->request.owner, .sandbox = c->request.sandbox };
    f->request.files.operation = operation;
    f->request.files.path = path;
    f->request.files.mode = operation == FILES_OP_WRITE ? f->mode : 0;
    f->request.files.flags = operation == FILES_OP_WRITE ? FILES_PARENTS : 0;
    f->request.files.length = operation == FILES_OP_LIST ? f->max : 0;
    sandbox_files_open(c->tools->settings.manager, &f->request, files_ops, f, &f->job);
}

void tool_file_done(struct tool_file *f)
{
    if (f->call)
        ev_defer_clear(f->call->tools->settings.ev, &f->end_defer);
    sandbox_files_free(take_ptr(&f->job));
    free(f->path);
    buf_done(&f->data);
    *f = (struct tool_file){ 0 };
}

/* --- read --- */

/* A link was followed: the size of its target is not known yet. */
static void tool_file_on_read_entry(void *arg, const struct files_entry *e)
{
    struct tool_file *f = arg;
    struct err why;

    f->mode = e->kind == 'f' ? e->mode & 07777u : 0;
    f->size = e->kind == 'f' ? e->size : 0;
    if (e->kind != 'f' && e->kind != 'l') {
        err_set(&why, ERR_WRONG_KIND, "%.150s: is a %s, not a file%s", f->path, tool_file_kind_name(e->kind),
                e->kind == 'd' ? "; use list or glob" : "");
        tool_file_end(f, NULL, &why);
    } else if (!f->ops->on_entry || f->ops->on_entry(f->arg, e)) {
        sandbox_files_read(f->job, 0, 0);
    }
}

static void tool_file_on_read_data(void *arg, const void *data, size_t len)
{
    struct tool_file *f = arg;

    if (f->ops->on_data) {
        f->ops->on_data(f->arg, data, len);
    } else if (f->is_too_large || f->data.len + len > f->max) {
        f->is_too_large = true;
        ev_defer(f->call->tools->settings.ev, &f->end_defer, tool_file_end_too_large, f);
    } else {
        buf_add(&f->data, data, len);
    }
}

static bool tool_file_on_changing(void *arg UNUSED)
{
    return true;
}

void tool_file_read(struct tool_file *f, struct tool_call *c, char *path, uint64_t max, const struct tool_file_ops *ops,
                    void *arg)
{
    static const struct sandbox_files_ops files_ops = { .files.on_entry = tool_file_on_read_entry,
                                                        .files.on_data = tool_file_on_read_data,
                                                        .files.on_done = tool_file_on_done,
                                                        .on_start = tool_file_on_start,
                                                        .on_changing = tool_file_on_changing };

    f->ops = ops;
    f->arg = arg;
    f->max = max;
    f->is_too_large = false;
    buf_clear(&f->data);
    tool_file_begin(f, c, path, FILES_OP_READ, &files_ops);
}

/* --- write --- */

static void tool_file_send(void *arg)
{
    struct tool_file *f = arg;

    f->sent += sandbox_files_send(f->job, f->content + f->sent, f->content_len - f->sent);
    if (f->sent == f->content_len) {
        f->sent++; /* the end is sent once */
        sandbox_files_send_end(f->job);
    }
}

static void tool_file_on_write_start(void *arg)
{
    tool_file_on_start(arg);
    tool_file_send(arg);
}

static void tool_file_on_writable(void *arg)
{
    struct tool_file *f = arg;

    if (f->sent < f->content_len)
        tool_file_send(f);
}

void tool_file_write(struct tool_file *f, struct tool_call *c, char *path, const char *content, size_t len,
                     uint32_t mode, const struct tool_file_ops *ops, void *arg)
{
    static const struct sandbox_files_ops files_ops = { .files.on_writable = tool_file_on_writable,
                                                        .files.on_done = tool_file_on_done,
                                                        .on_start = tool_file_on_write_start };

    f->ops = ops;
    f->arg = arg;
    f->content = content;
    f->content_len = len;
    f->sent = 0;
    f->mode = mode;
    f->is_too_large = false;
    tool_file_begin(f, c, path, FILES_OP_WRITE, &files_ops);
}

/* --- list --- */

static void tool_file_on_listed(void *arg, const struct files_entry *e)
{
    struct tool_file *f = arg;

    f->ops->on_name(f->arg, e);
}

void tool_file_list(struct tool_file *f, struct tool_call *c, char *path, uint64_t max, const struct tool_file_ops *ops,
                    void *arg)
{
    static const struct sandbox_files_ops files_ops = { .files.on_entry = tool_file_on_listed,
                                                        .files.on_done = tool_file_on_done,
                                                        .on_start = tool_file_on_start };

    f->ops = ops;
    f->arg = arg;
    f->max = max;
    f->is_too_large = false;
    tool_file_begin(f, c, path, FILES_OP_LIST, &files_ops);
}
