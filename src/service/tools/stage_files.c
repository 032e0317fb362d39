/* stage_files: files from the client into uploads/. */
#include "service/tools/tool_staging.h"

#include "core/base/mem.h"
#include "core/base/str.h"

static const char stage_files_input[] =
    "{\"type\": \"object\", \"properties\": {\"files\": " TOOL_STAGING_SCHEMA
    ", \"minItems\": 1, \"description\": \"Names are relative to /workspace/uploads.\"}}, "
    "\"required\": [\"files\"], \"additionalProperties\": false}";
/* clang-format off */
static const char stage_files_output[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "files": {"type": "array", "items": {"type": "object", "properties": {"path": {"type": "string"}, "size": {"type": "integer"}}, "required": ["path", "size"]}},
        "path": {"type": "string"},
        "error": {"type": "object", "properties": {"code": {"type": "string"}, "message": {"type": "string"}}}
    },
    "anyOf": [{"required": ["files"]}, {"required": ["error"]}]
});
/* clang-format on */

static void stage_files_stop(void *work)
{
    tool_staging_done(work);
    free(work);
}

static void stage_files_on_end(void *arg, const struct err *err)
{
    struct tool_staging *s = arg;
    struct tool_answer *a = &s->call->answer;
    char size[32];
    struct jsonw w;

    if (err) {
        tool_file_fail(&s->file, err);
        return;
    }
    jsonw_init(&w, &a->json, 0);
    jsonw_object(&w);
    jsonw_karray(&w, "files");
    for (size_t i = 0; i < s->n; i++) {
        jsonw_object(&w);
        jsonw_kstr(&w, "path", s->files[i].path);
        jsonw_ku64(&w, "size", s->files[i].len);
        jsonw_end_object(&w);
        buf_addf(&a->text, "%sWrote %s to %s.", i ? "\n" : "", str_size(s->files[i].len, size), s->files[i].path);
    }
    jsonw_end_array(&w);
    jsonw_end_object(&w);
    tool_call_finish(s->call);
}

static int stage_files_start(struct tool_call *c, struct err *err)
{
    struct tool_staging *s = mem_new(struct tool_staging);

    if (tool_staging_read(s, c->request.arguments, "files", "/workspace/uploads", err) < 0 ||
        (s->n == 0 && err_set(err, ERR_INVALID, "files: must contain at least one file") < 0)) {
        stage_files_stop(s);
        return -1;
    }
    c->work = s;
    c->stop = stage_files_stop;
    tool_staging_write(s, c, stage_files_on_end, s);
    return 0;
}

const struct tool_definition tool_stage_files = {
    .tool = { .name = "stage_files",
              .title = "Stage files",
              .description =
                  "Writes up to 64 files from the client into /workspace/uploads of the sandbox, as text or in base64, "
                  "so that programs can use them. Existing files of these names are replaced. Use write_file for one "
                  "text file at any place.",
              .input_schema = stage_files_input,
              .output_schema = stage_files_output,
              .place = TOOL_IN_SANDBOX,
              .rights = TOOL_WRITES_FILES,
              .is_destructive = true,
              .is_idempotent = true },
    .start = stage_files_start,
};
