/* The table of the tools, and what all calls have in common.
 *
 * A call ends in one place, tool_call_on_end, which the loop calls: the work may therefore end
 * inside of the call that began it, and no caller sees a result before tool_call_start has
 * returned. The work is stopped before the caller is called, so the caller may do anything. */
#include "service/tools/tools.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "service/tools/script_runs.h"
#include "service/tools/tool_internal.h"

extern const struct tool_definition tool_search_tools, tool_run_sandbox;
extern const struct tool_definition tool_run_code, tool_bash, tool_shell, tool_exec, tool_code_executor,
    tool_simple_execute_code, tool_read_file, tool_write_file, tool_edit_file, tool_list, tool_glob, tool_grep,
    tool_stage_files, tool_return_files, tool_mathematical_solve;

static const struct tool_definition *const definitions[] = {
    &tool_search_tools,
    &tool_run_sandbox,
    &tool_run_code,
    &tool_bash,
    &tool_shell,
    &tool_exec,
    &tool_code_executor,
    &tool_simple_execute_code,
    &tool_read_file,
    &tool_write_file,
    &tool_edit_file,
    &tool_list,
    &tool_glob,
    &tool_grep,
    &tool_stage_files,
    &tool_return_files,
    &tool_mathematical_solve,
};
_Static_assert(ARRAY_LEN(definitions) <= TOOLS_MAX, "TOOLS_MAX");

const struct tool *tools_all(size_t *ret_count)
{
    static struct tool all[ARRAY_LEN(definitions)];

    for (size_t i = 0; !all[ARRAY_LEN(definitions) - 1].name && i < ARRAY_LEN(definitions); i++)
        all[i] = definitions[i]->tool;
    *ret_count = ARRAY_LEN(definitions);
    return all;
}

const struct tool *tool_find(const char *name)
{
    size_t n;
    const struct tool *all = tools_all(&n);

    for (size_t i = 0; i < n; i++)
        if (str_eq(all[i].name, name))
            return &all[i];
    return NULL;
}

/* --- the module --- */

static size_t tools_index(const struct tool *tool)
{
    size_t n;

    return (size_t)(tool - tools_all(&n));
}

struct tools *tools_new(const struct tools_settings *set)
{
    struct tools *t = mem_new(struct tools);

    t->settings = *set;
    t->script_runs = script_runs_new(set->manager, set->script_cache);
    t->schemas = mem_new_array(json_t *, ARRAY_LEN(definitions));
    for (size_t i = 0; i < ARRAY_LEN(definitions); i++) {
        const char *text = definitions[i]->tool.input_schema;

        t->schemas[i] = json_loads(text, 0, NULL); /* a constant; a test parses all of them */
    }
    return t;
}

void tools_free(struct tools *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < ARRAY_LEN(definitions); i++)
        json_decref(t->schemas[i]);
    script_runs_free(t->script_runs);
    free(t->schemas);
    free(t);
}

const struct tools_stats *tools_get_stats(const struct tools *t)
{
    return &t->stats;
}

/* --- calls --- */

static void tool_answer_done(struct tool_answer *a)
{
    buf_done(&a->text);
    buf_done(&a->json);
    for (size_t i = 0; i < a->nimages; i++) {
        free((char *)a->images[i].type);
        free((char *)a->images[i].data);
    }
    free(a->images);
}

void tool_answer_add_image(struct tool_answer *a, const char *type, const char *data, size_t len)
{
    a->images = mem_resize(a->images, a->nimages + 1, sizeof(*a->images));
    a->images[a->nimages++] = (struct tool_image){ str_dup(type), str_dup_n(data, len) };
}

static void tool_call_stop_work(struct tool_call *c)
{
    if (c->stop)
        c->stop(take_ptr(&c->work));
    c->stop = NULL;
}

static void tool_call_free(struct tool_call *c)
{
    tool_call_stop_work(c);
    ev_defer_clear(c->tools->settings.ev, &c->end_defer);
    list_remove(&c->tools->calls, c);
    tool_answer_done(&c->answer);
    free(c);
}

static void tool_call_count(struct tool_call *c)
{
    struct tools_stats *s = &c->tools->stats;
    size_t i = tools_index(c->request.tool);

    if (c->has_failed)
        s->refused[i]++;
    else if (c->answer.is_error)
        s->failed[i]++;
    else
        s->succeeded[i]++;
    if (!c->has_failed && c->answer.is_truncated)
        s->truncated[i]++;
}

static void tool_call_on_end(void *arg)
{
    struct tool_call *c = arg;
    struct tool_answer *a = &c->answer;
    struct tool_result r = { .is_error = a->is_error,
                             .is_truncated = a->is_truncated,
                             .text = a->text.data ? a->text.data : "",
                             .json = a->json.data,
                             .images = a->images,
                             .nimages = a->nimages,
                             .execution = a->execution[0] ? a->execution : NULL };

    tool_call_stop_work(c);
    tool_call_count(c);
    if (c->has_failed)
        c->ops.on_end(c->arg, &c->err, NULL);
    else
        c->ops.on_end(c->arg, NULL, &r);
    tool_call_free(c);
}

void tool_call_finish(struct tool_call *c)
{
    ev_defer(c->tools->settings.ev, &c->end_defer, tool_call_on_end, c);
}

void tool_call_fail(struct tool_call *c, const struct err *err)
{
    c->has_failed = true;
    c->err = *err;
    tool_call_finish(c);
}

void tool_call_finish_with_error(struct tool_call *c, const struct err *err, const char *path)
{
    struct jsonw w;

    buf_clear(&c->answer.json);
    buf_clear(&c->answer.text);
    jsonw_init(&w, &c->answer.json, 0);
    jsonw_object(&w);
    jsonw_kstr_if(&w, "path", path);
    jsonw_kobject(&w, "error");
    jsonw_kstr(&w, "code", err_info(err->id)->code);
    jsonw_kstr(&w, "message", err->msg);
    jsonw_end_object(&w);
    jsonw_end_object(&w);
    buf_adds(&c->answer.text, "Error: ");
    tool_text_add(&c->answer.text, err->msg, strlen(err->msg));
    c->answer.is_error = true;
    tool_call_finish(c);
}

static int tool_call_check(const struct tools *t, const struct tool_request *request, struct err *err)
{
    const struct tool *tool = request->tool;

    if (!json_is_object(request->arguments))
        return err_set(err, ERR_INVALID, "the arguments of %s must be a JSON object", tool->name);
    if (tool->place == TOOL_IN_SANDBOX && !request->sandbox)
        return err_set(err, ERR_INVALID, "%s: acts in a sandbox; name one", tool->name);
    return tool_arguments_check_names(request->arguments, t->schemas[tools_index(tool)], err);
}

int tool_call_start(struct tools *t, const struct tool_request *request, const struct tool_ops *ops, void *arg,
                    struct tool_call **ret, struct err *err)
{
    struct tool_call *c = mem_new(struct tool_call);

    c->tools = t;
    c->definition = definitions[tools_index(request->tool)];
    c->request = *request;
    c->ops = *ops;
    c->arg = arg;
    list_push(&t->calls, c);
    if (tool_call_check(t, request, err) < 0 || c->definition->start(c, err) < 0) {
        t->stats.refused[tools_index(request->tool)]++;
        tool_call_free(c);
        return -1;
    }
    *ret = c;
    return 0;
}

void tools_finish(struct tools *t)
{
    while (t && t->calls) {
        struct tool_call *c = t->calls;

        if (!c->end_defer.on) {
            c->has_failed = true;
            err_set(&c->err, ERR_BUSY, "the server is stopping; try again later");
        }
        ev_defer_clear(t->settings.ev, &c->end_defer);
        tool_call_on_end(c);
    }
    if (t)
        script_runs_finish(t->script_runs);
}

void tool_call_cancel(struct tool_call *c)
{
    c->tools->stats.cancelled[tools_index(c->request.tool)]++;
    tool_call_free(c);
}
