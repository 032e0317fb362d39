#include "service/tools/tool_staging.h"

#include "core/base/str.h"
#include "core/base/text.h"
#include "service/execute/run_path.h"

#include <stdio.h>

static int staging_read_file(struct tool_staging *s, const json_t *file, const char *at, const char *dir,
                             struct err *err)
{
    static const char *const names[] = { "name", "content", "content_base64", "mime_type", NULL };
    struct staged_file *f = &s->files[s->n];
    const char *name = NULL, *text = NULL, *coded = NULL, *type = NULL;
    char where[80];

    snprintf(where, sizeof(where), "%s.", at);
    if (!json_is_object(file))
        return err_set(err, ERR_INVALID, "%s: must be an object with name and content or content_base64", at);
    if (json_input_require_known_fields(file, where, names, err) < 0 ||
        json_input_text(file, where, "name", 1, TOOL_PATH_MAX, &name, err) < 0 ||
        json_input_text(file, where, "content", 0, JSON_INPUT_SIZE_MAX, &text, err) < 0 ||
        json_input_text(file, where, "content_base64", 0, JSON_INPUT_SIZE_MAX, &coded, err) < 0 ||
        json_input_text(file, where, "mime_type", 0, 200, &type, err) < 0)
        return -1;
    if (!name || !text == !coded)
        return err_set(err, ERR_INVALID, "%s: name and either content or content_base64 are required", at);
    if (coded && !text_from_base64(&f->decoded, coded, strlen(coded)))
        return err_set(err, ERR_INVALID, "%s.content_base64: not valid base64", at);
    auto_free char *path = name[0] == '/' ? str_dup(name) : str_printf("%s/%s", dir, name);
    snprintf(where, sizeof(where), "%s.name", at);
    if (run_path_resolve(path, where, &f->path, err) < 0)
        return -1;
    f->data = text ? text : f->decoded.data ? f->decoded.data : "";
    f->len = text ? strlen(text) : f->decoded.len;
    s->bytes += f->len;
    return 0;
}

int tool_staging_read(struct tool_staging *s, const json_t *arguments, const char *name, const char *dir,
                      struct err *err)
{
    json_t *list = NULL;
    char at[48];

    if (json_input_array(arguments, "", name, TOOL_STAGED_MAX, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(list); i++) {
        int rc;

        snprintf(at, sizeof(at), "%s[%zu]", name, i);
        rc = staging_read_file(s, json_array_get(list, i), at, dir, err);
        s->n++; /* a refused file is freed, too */
        if (rc < 0)
            return -1;
    }
    return 0;
}

void tool_staging_done(struct tool_staging *s)
{
    tool_file_done(&s->file);
    for (size_t i = 0; i < s->n; i++) {
        free(s->files[i].path);
        buf_done(&s->files[i].decoded);
    }
    s->n = 0;
}

static void staging_on_written(void *arg, const struct files_done *d UNUSED, const struct err *err);

static void staging_write_next(struct tool_staging *s)
{
    static const struct tool_file_ops ops = { .on_end = staging_on_written };
    const struct staged_file *f = &s->files[s->next];

    if (s->next == s->n)
        s->on_end(s->arg, NULL);
    else
        tool_file_write(&s->file, s->call, str_dup(f->path), f->data, f->len, 0, &ops, s);
}

static void staging_on_written(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct tool_staging *s = arg;

    if (err) {
        s->on_end(s->arg, err);
        return;
    }
    s->next++;
    staging_write_next(s);
}

void tool_staging_write(struct tool_staging *s, struct tool_call *c, void (*on_end)(void *arg, const struct err *err),
                        void *arg)
{
    s->call = c;
    s->on_end = on_end;
    s->arg = arg;
    s->next = 0;
    staging_write_next(s);
}
