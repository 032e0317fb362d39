/* code_executor: code with input files in, output and output files out.
 *
 * Without execution_id the code runs in a fresh sandbox, through the executor: nothing stays. With
 * the id of a sandbox it runs in the default context of that sandbox, after its input files are
 * written there, so variables and files stay between calls. Success is decided by exit code and
 * exception, not by an empty stderr. */
#include "service/tools/tool_collect.h"
#include "service/tools/tool_output_files.h"
#include "service/tools/tool_program.h"
#include "service/tools/tool_result.h"
#include "service/tools/tool_staging.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/limits.h"
#include "service/context.h"
#include "service/custom_policy.h"
#include "service/execute/executor.h"
#include "service/language_kernel.h"

/* clang-format off */
static const char code_executor_input[] =
    "{\"type\": \"object\", \"properties\": {"
    "\"code\": {\"type\": \"string\", \"minLength\": 1},"
    "\"language\": {\"enum\": [\"python\", \"node\", \"bash\"], \"description\": \"Default: python; with execution_id the language of the sandbox.\"},"
    "\"input_files\": " TOOL_STAGING_SCHEMA ", \"description\": \"Written to /workspace before the code runs.\"},"
    "\"output_files\": {\"type\": \"array\", \"maxItems\": 16, \"items\": {\"type\": \"string\"}, \"description\": \"Paths or patterns of files to return. Default: new files in /workspace and /workspace/outputs.\"},"
    "\"execution_id\": {\"type\": \"string\", \"description\": \"Id of a sandbox (sb...) to continue in: its variables and files stay. Default: a fresh sandbox.\"},"
    "\"timeout_ms\": {\"type\": \"integer\", \"minimum\": 1}},"
    "\"required\": [\"code\"], \"additionalProperties\": false}";

static const char code_executor_output[] =
    "{\"type\": \"object\", \"properties\": {"
    "\"stdout\": {\"type\": \"string\"}, \"stderr\": {\"type\": \"string\"},"
    "\"exit_code\": {\"type\": [\"integer\", \"null\"]},"
    "\"outcome\": {\"enum\": [\"success\", \"error\", \"timeout\", \"out_of_memory\", \"killed\", \"lost\"]},"
    "\"value\": {\"type\": [\"string\", \"null\"], \"description\": \"The value of the last expression.\"},"
    "\"exception\": {\"type\": \"object\", \"properties\": {\"name\": {\"type\": \"string\"}, \"value\": {\"type\": \"string\"}, \"traceback\": {\"type\": \"string\"}}},"
    "\"hint\": {\"type\": \"string\"}, \"truncated\": {\"type\": \"boolean\"},"
    "\"execution_id\": {\"type\": \"string\", \"description\": \"To continue: the sandbox of a call with execution_id. Otherwise the run, which is over.\"},"
    TOOL_OUTPUT_FILES_SCHEMA ","
    "\"path\": {\"type\": \"string\"}, \"error\": {\"type\": \"object\"}},"
    "\"anyOf\": [{\"required\": [\"stdout\", \"stderr\", \"exit_code\", \"outcome\", \"output_files\", \"execution_id\"]}, {\"required\": [\"error\"]}]}";
/* clang-format on */

static const char *const code_executor_preset[] = { "/workspace/*", "/workspace/outputs/*", NULL };

struct code_executor {
    struct tool_call *call;
    struct tool_staging staging;
    char **patterns; /* NULL: the default */
    const char *code, *language;
    char sandbox[ID_SIZE]; /* "": a fresh one */
    uint64_t timeout_ms;

    /* In a fresh sandbox. */
    struct spec spec;
    struct run_file files[RUN_FILES_MAX];
    struct run *run;

    /* In a sandbox that exists. */
    struct tool_collect collect;
    json_t *result; /* of the execution, while files are collected */
    void *program;  /* the work of tool_program.h */
    void (*program_stop)(void *work);
};

static void code_executor_stop(void *work)
{
    struct code_executor *x = work;

    if (x->run)
        run_cancel(take_ptr(&x->run));
    if (x->program)
        x->program_stop(take_ptr(&x->program));
    tool_collect_done(&x->collect);
    tool_staging_done(&x->staging);
    tool_collect_free_patterns(x->patterns);
    json_decref(x->result);
    spec_done(&x->spec);
    free(x);
}

static const char *const *code_executor_patterns(const struct code_executor *x)
{
    return x->patterns ? (const char *const *)x->patterns : code_executor_preset;
}

/* --- the answer --- */

/* Whether it is an input file that the code did not change. */
static bool code_executor_is_input(const struct code_executor *x, const json_t *file)
{
    const char *path = json_string_value(json_object_get(file, "path"));
    const json_t *text = json_object_get(file, "content");
    auto_free char *full = path[0] == '/' ? str_dup(path) : str_printf("/workspace/%s", path);
    json_int_t size = json_integer_value(json_object_get(file, "sizeBytes"));

    for (size_t i = 0; i < x->staging.n; i++) {
        const struct staged_file *f = &x->staging.files[i];

        if (str_eq(f->path, full) && (json_int_t)f->len == size &&
            (!text || memcmp(json_string_value(text), f->data, f->len) == 0))
            return true;
    }
    return false;
}

static void code_executor_drop_inputs(const struct code_executor *x, json_t *files)
{
    for (size_t i = json_array_size(files); i > 0; i--)
        if (code_executor_is_input(x, json_array_get(files, i - 1)))
            json_array_remove(files, i - 1);
}

/* Without patterns of the caller, a directory that does not exist is nothing to report. */
static void code_executor_drop_preset(json_t *omitted)
{
    for (size_t i = json_array_size(omitted); i > 0; i--)
        if (str_eq(json_string_value(json_object_get(json_array_get(omitted, i - 1), "path")), "outputs"))
            json_array_remove(omitted, i - 1);
}

static void code_executor_copy(json_t *to, const char *key, const json_t *from, const char *name)
{
    json_t *v = json_object_get(from, name);

    if (v)
        json_object_set(to, key, v);
}

/* The answer of tool_result_make, in the keys of this tool. */
static void code_executor_reshape(struct code_executor *x, json_t *files, json_t *omitted, const char *id)
{
    struct tool_answer *a = &x->call->answer;
    auto_json *full = json_loadb(a->json.data, a->json.len, 0, NULL), *result = json_object();
    static const char *const same[] = { "stdout",    "stderr", "outcome",   "value",
                                        "exception", "hint",   "truncated", "error" };
    auto_buf lines = { 0 };

    for (size_t i = 0; i < ARRAY_LEN(same); i++)
        code_executor_copy(result, same[i], full, same[i]);
    code_executor_copy(result, "exit_code", full, "exitCode");
    json_object_set_new(result, "execution_id", json_string(id));
    if (!x->patterns) {
        code_executor_drop_inputs(x, files);
        code_executor_drop_preset(omitted);
    }
    json_object_set_new(result, "output_files", tool_output_files_make(a, files, &lines));
    if (json_array_size(omitted) > 0) {
        a->is_truncated = true;
        json_object_set_new(result, "omitted", tool_output_files_omitted(omitted, &lines));
    }
    tool_text_add_part(&a->text, "files", lines.data ? lines.data : "", lines.len);
    auto_free char *text = json_dumps(result, JSON_COMPACT);
    buf_clear(&a->json);
    buf_adds(&a->json, text ? text : "{}");
    tool_call_finish(x->call);
}

/* --- in a fresh sandbox --- */

static void code_executor_read_member(const void *arg, int channel, uint64_t offset, size_t len, struct buf *out)
{
    const json_t *text = ((const json_t *const *)arg)[channel - 1];

    buf_add(out, json_string_value(text) + offset, len);
}

static void code_executor_on_run_end(void *arg, const struct err *err, const struct run_result *r)
{
    struct code_executor *x = arg;
    struct tool_answer *a = &x->call->answer;
    auto_buf text = { 0 };

    x->run = NULL;
    if (err) {
        tool_call_fail(x->call, err);
        return;
    }
    buf_add(&text, r->json->data, r->json->len);
    buf_adds(&text, "}");
    json_t *result = tool_text_load_json(&text);
    json_t *output[2] = { json_incref(json_object_get(result, "stdout")),
                          json_incref(json_object_get(result, "stderr")) };
    auto_json *files = json_incref(json_object_get(result, "files"));
    auto_json *omitted = json_incref(json_object_get(result, "omitted"));
    struct tool_streams streams = { .bytes = { json_string_length(output[0]), json_string_length(output[1]) },
                                    .read = code_executor_read_member,
                                    .arg = output };
    (void)str_copy(a->execution, sizeof(a->execution), r->id);
    tool_result_make(a, result, &streams, x->call->tools->settings.output_bytes,
                     "Print less, or write it to a file and name that in output_files.");
    json_decref(output[0]);
    json_decref(output[1]);
    code_executor_reshape(x, files, omitted, r->id);
}

static int code_executor_make_spec(struct code_executor *x, struct err *err)
{
    uint64_t *lifetime = &x->spec.limits.v[LIMIT_LIFETIME];

    (void)str_copy(x->spec.runtime, sizeof(x->spec.runtime), x->language);
    if (custom_policy_apply_operator_limits(&x->spec, x->call->tools->settings.operator_limits, err) < 0)
        return -1;
    if (!x->timeout_ms)
        x->timeout_ms = x->spec.limits.v[LIMIT_WALL];
    if (x->timeout_ms >= *lifetime)
        *lifetime = min_u64(x->timeout_ms + 60000, limit_info(LIMIT_LIFETIME)->max);
    return spec_finish(&x->spec, err);
}

static int code_executor_start_run(struct code_executor *x, struct err *err)
{
    static const struct run_ops ops = { .on_end = code_executor_on_run_end };
    const struct tool_call *c = x->call;
    struct run_request request = { .owner = c->request.tenant,
                                   .created_by = c->request.created_by,
                                   .request_id = c->request.request_id,
                                   .spec = &x->spec,
                                   .code = x->code,
                                   .files = x->files,
                                   .nfiles = x->staging.n,
                                   .outputs = code_executor_patterns(x),
                                   .receipt = RECEIPT_NONE };

    if (!c->tools->settings.executor)
        return err_set(err, ERR_BUSY, "this server has no executor");
    if (strlen(x->code) > CONTEXT_CODE_MAX)
        return err_set(err, ERR_INVALID, "code: has more than %llu bytes", CONTEXT_CODE_MAX);
    if (!x->language)
        x->language = "python";
    if (code_executor_make_spec(x, err) < 0)
        return -1;
    for (size_t i = 0; i < x->staging.n; i++)
        x->files[i] = (struct run_file){ x->staging.files[i].path, x->staging.files[i].data, x->staging.files[i].len };
    request.language = x->language;
    request.timeout_ms = x->timeout_ms;
    request.output_max = min_u64(x->spec.limits.v[LIMIT_OUTPUT], RUN_OUTPUT_MAX);
    return executor_run(c->tools->settings.executor, &request, &ops, x, &x->run, err);
}

/* --- in a sandbox that exists --- */

static void code_executor_on_collected(void *arg, const struct err *err)
{
    struct code_executor *x = arg;

    if (err)
        tool_call_fail(x->call, err);
    else
        code_executor_reshape(x, x->collect.files, x->collect.omitted, x->sandbox);
}

static void code_executor_on_ended(struct tool_call *c, const struct store_execution *row)
{
    struct code_executor *x = c->work;

    tool_program_make_answer(c, row);
    tool_collect_start(&x->collect, c, code_executor_patterns(x), RUN_GATHERED_BYTES, code_executor_on_collected, x);
}

/* tool_program_start sets the work of the call, which is this tool's. */
static void code_executor_start_program(struct code_executor *x)
{
    struct tool_call *c = x->call;
    struct execution_spec spec = { .code = x->code, .language = x->language, .timeout_ms = x->timeout_ms };

    tool_program_start(c, &spec, NULL, code_executor_on_ended);
    x->program = c->work;
    x->program_stop = c->stop;
    c->work = x;
    c->stop = code_executor_stop;
}

static void code_executor_on_staged(void *arg, const struct err *err)
{
    struct code_executor *x = arg;

    if (err)
        tool_file_fail(&x->staging.file, err);
    else
        code_executor_start_program(x);
}

static int code_executor_read(struct code_executor *x, struct err *err)
{
    const json_t *a = x->call->request.arguments;
    const char *id = NULL;

    if (json_input_text(a, "", "code", 1, EXECUTION_CODE_MAX, &x->code, err) < 0 ||
        tool_arguments_language(a, &x->language, err) < 0 || tool_arguments_timeout(x->call, &x->timeout_ms, err) < 0 ||
        tool_staging_read(&x->staging, a, "input_files", "/workspace", err) < 0 ||
        tool_collect_read_patterns(a, "output_files", &x->patterns, err) < 0 ||
        json_input_text(a, "", "execution_id", 1, 64, &id, err) < 0)
        return -1;
    if (id && id_valid(id, "ex"))
        return err_set(err, ERR_INVALID,
                       "execution_id: %s ran in a fresh sandbox, which is gone; to keep variables and files, create a "
                       "sandbox and pass its id (sb...)",
                       id);
    if (id && !id_valid(id, "sb"))
        return err_set(err, ERR_INVALID, "execution_id: must be the id of a sandbox (sb...)");
    (void)str_copy(x->sandbox, sizeof(x->sandbox), id ? id : "");
    return 0;
}

static int code_executor_start(struct tool_call *c, struct err *err)
{
    struct code_executor *x = mem_new(struct code_executor);

    x->call = c;
    spec_init(&x->spec);
    c->work = x;
    c->stop = code_executor_stop;
    if (code_executor_read(x, err) < 0)
        return -1;
    if (!x->sandbox[0])
        return code_executor_start_run(x, err);
    c->request.sandbox = x->sandbox;
    tool_staging_write(&x->staging, c, code_executor_on_staged, x);
    return 0;
}

const struct tool_definition tool_code_executor = {
    .tool = { .name = "code_executor",
              .title = "Execute code with files",
              .description =
                  "Runs one piece of Python, JavaScript or bash code with its input files and returns stdout, stderr, "
                  "exit_code and the files that it wrote to /workspace or /workspace/outputs. Each call has a fresh "
                  "sandbox, which is removed afterwards; pass the id of a sandbox as execution_id to keep variables "
                  "and "
                  "files. At most 64 input files and 8 MiB of output files. Use run_code, bash and the file tools for "
                  "work in several steps.",
              .input_schema = code_executor_input,
              .output_schema = code_executor_output,
              .place = TOOL_IN_FRESH,
              .rights = TOOL_EXECUTES,
              .is_open_world = true },
    .start = code_executor_start,
};
