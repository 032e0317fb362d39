/* write_file: a file with this content, and its missing parents. */
#include "service/tools/tool_file.h"

#include "core/base/mem.h"
#include "core/base/str.h"

/* clang-format off */
static const char write_file_input[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "file_path": {"type": "string", "minLength": 1, "maxLength": 4000, "description": "Absolute, or relative to /workspace."},
        "content": {"type": "string", "description": "The complete text of the file."}
    },
    "required": ["file_path", "content"],
    "additionalProperties": false
});
static const char write_file_output[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "path": {"type": "string"},
        "size": {"type": "integer", "description": "Bytes written."},
        "error": {"type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}}}
    },
    "anyOf": [{"required": ["path", "size"]}, {"required": ["error"]}]
});
/* clang-format on */

static void write_file_stop(void *work)
{
    tool_file_done(work);
    free(work);
}

static void write_file_on_end(void *arg, const struct files_done *d, const struct err *err)
{
    struct tool_file *f = arg;
    struct tool_call *c = f->call;
    char text[32];
    struct jsonw w;

    if (err) {
        tool_file_fail(f, err);
        return;
    }
    jsonw_init(&w, &c->answer.json, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "path", f->path);
    jsonw_ku64(&w, "size", d->bytes);
    jsonw_end_object(&w);
    buf_addf(&c->answer.text, "Wrote %s to %s.", str_size(d->bytes, text), f->path);
    tool_call_finish(c);
}

static int write_file_start(struct tool_call *c, struct err *err)
{
    static const struct tool_file_ops ops = { .on_end = write_file_on_end };
    const json_t *a = c->request.arguments;
    const char *content = NULL;
    char *path = NULL;

    if (json_input_text(a, "", "content", 0, JSON_INPUT_SIZE_MAX, &content, err) < 0 ||
        tool_arguments_path(a, "file_path", NULL, &path, err) < 0)
        return -1;
    struct tool_file *f = mem_new(struct tool_file);
    c->work = f;
    c->stop = write_file_stop;
    tool_file_write(f, c, path, content, strlen(content), 0, &ops, f);
    return 0;
}

const struct tool_definition tool_write_file = {
    .tool = { .name = "write_file",
              .title = "Write a file",
              .description =
                  "Writes a text file of the sandbox: creates it with missing parent directories, or replaces its "
                  "whole "
                  "content. The file appears complete or not at all. Use edit_file to change a part of a file, and "
                  "stage_files for binary files.",
              .input_schema = write_file_input,
              .output_schema = write_file_output,
              .place = TOOL_IN_SANDBOX,
              .rights = TOOL_WRITES_FILES,
              .is_destructive = true,
              .is_idempotent = true },
    .start = write_file_start,
};
