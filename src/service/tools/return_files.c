/* return_files: the contents of files, for the client. */
#include "service/tools/tool_collect.h"
#include "service/tools/tool_output_files.h"

#include "core/base/mem.h"

#define RETURN_BYTES_MAX (4 * MIB)

/* clang-format off */
static const char return_files_input[] = TOOL_JSON({
    "type": "object",
    "properties": {
        "paths": {"type": "array", "minItems": 1, "maxItems": 16, "items": {"type": "string"}, "description": "Paths or patterns such as outputs/*.png, below /workspace or /tmp. Default: outputs/*."}
    },
    "additionalProperties": false
});
/* clang-format on */

static const char return_files_output[] = "{\"type\": \"object\", \"properties\": {" TOOL_OUTPUT_FILES_SCHEMA
                                          "}, \"required\": [\"output_files\"]}";

struct return_files {
    struct tool_call *call;
    struct tool_collect collect;
    char **patterns; /* NULL: the default */
};

static void return_files_stop(void *work)
{
    struct return_files *r = work;

    tool_collect_done(&r->collect);
    tool_collect_free_patterns(r->patterns);
    free(r);
}

static void return_files_on_end(void *arg, const struct err *err)
{
    struct return_files *r = arg;
    struct tool_answer *a = &r->call->answer;
    auto_buf lines = { 0 };

    if (err) {
        tool_call_fail(r->call, err);
        return;
    }
    a->is_truncated = json_array_size(r->collect.omitted) > 0;
    a->is_error = a->is_truncated && json_array_size(r->collect.files) == 0;
    auto_json *result = json_object();
    json_object_set_new(result, "output_files", tool_output_files_make(a, r->collect.files, &lines));
    if (a->is_truncated)
        json_object_set_new(result, "omitted", tool_output_files_omitted(r->collect.omitted, &lines));
    auto_free char *text = json_dumps(result, JSON_COMPACT);
    buf_adds(&a->json, text ? text : "{}");
    tool_text_add(&a->text, lines.len ? lines.data : "No file matches.",
                  lines.len ? lines.len : strlen("No file matches."));
    tool_call_finish(r->call);
}

static int return_files_start(struct tool_call *c, struct err *err)
{
    static const char *const preset[] = { "/workspace/outputs/*", NULL };
    char **patterns = NULL;

    if (tool_collect_read_patterns(c->request.arguments, "paths", &patterns, err) < 0)
        return -1;
    struct return_files *r = mem_new(struct return_files);
    r->call = c;
    r->patterns = patterns;
    c->work = r;
    c->stop = return_files_stop;
    tool_collect_start(&r->collect, c, patterns ? (const char *const *)patterns : preset, RETURN_BYTES_MAX,
                       return_files_on_end, r);
    return 0;
}

const struct tool_definition tool_return_files = {
    .tool = { .name = "return_files",
              .title = "Return files",
              .description =
                  "Returns the contents of files of the sandbox to the client: text as it is, other files in base64, "
                  "images also as images. Takes paths or patterns (default: outputs/*, where programs put results for "
                  "the user). Together at most 4 MiB and 100 files; files that do not fit are named with the reason. "
                  "Use read_file to read text yourself.",
              .input_schema = return_files_input,
              .output_schema = return_files_output,
              .place = TOOL_IN_SANDBOX,
              .rights = TOOL_READS_FILES,
              .is_read_only = true,
              .is_idempotent = true },
    .start = return_files_start,
};
