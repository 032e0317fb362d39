/* Archives to unpack, cut into pieces by the input's first byte. The entries that the parser
 * returns must keep the promises of its header for any input. */
#include "core/base/base.h"
#include "inside/runtime/tar.h"

#define BYTES_MAX 100000u

struct state {
    uint64_t promised, heard;
    bool open;
};

static void check_path(const char *path)
{
    if (path[0] == '/' || strlen(path) >= TAR_PATH_MAX)
        abort();
    for (const char *p = path; *p;) {
        size_t len = strcspn(p, "/");

        if (len == 0 || len > 255 || (len == 1 && p[0] == '.') || (len == 2 && p[0] == '.' && p[1] == '.'))
            abort();
        p += len;
        if (*p == '/' && *++p == '\0')
            abort();
    }
}

static int on_entry(void *arg, const struct tar_entry *e, struct err *err UNUSED)
{
    struct state *s = arg;

    if (s->open || e->mode > 0777 || e->size > BYTES_MAX || !strchr("fdlh", e->kind))
        abort();
    check_path(e->path);
    if (e->path[0] == '\0' && e->kind != 'd')
        abort();
    if (e->kind == 'h')
        check_path(e->link);
    if ((e->kind == 'h' || e->kind == 'l') != (e->link[0] != '\0'))
        abort();
    s->open = e->kind == 'f';
    s->promised = e->size;
    s->heard = 0;
    return 0;
}

static int on_bytes(void *arg, const void *data UNUSED, size_t len, struct err *err UNUSED)
{
    struct state *s = arg;

    s->heard += len;
    if (!s->open || s->heard > s->promised)
        abort();
    return 0;
}

static int on_entry_end(void *arg, struct err *err UNUSED)
{
    struct state *s = arg;

    if (!s->open || s->heard != s->promised)
        abort();
    s->open = false;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct tar_ops ops = { on_entry, on_bytes, on_entry_end };
    static struct tar_parser t;
    struct state s = { 0 };
    struct err err;

    if (size < 1)
        return 0;
    size_t piece = (size_t)data[0] * 8 + 1;
    tar_parser_init(&t, BYTES_MAX, &ops, &s);
    for (size_t at = 1; at < size; at += piece)
        if (tar_parser_feed(&t, data + at, min_size(piece, size - at), &err) < 0)
            goto out;
    tar_parser_finish(&t, &err);
out:
    tar_parser_done(&t);
    return 0;
}
