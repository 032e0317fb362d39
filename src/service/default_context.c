/* The context is made, or restarted, in the same turn of the loop in which its execution is queued:
 * it has no life without an execution that wants it. If its language kernel never becomes ready,
 * that execution fails with the reason and the context is gone, so the next request tries again. */
#include "service/default_context.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/context_internal.h"

#include <stdio.h>

bool default_context_serves(const struct execution_spec *s)
{
    return s->code && !s->isolated && !s->tty;
}

struct default_context_request { /* until the sandbox is running */
    struct sandbox_services *services;
    char owner[STORE_OWNER_MAX + 1], sandbox[ID_SIZE];
    char language[16]; /* "": the sandbox's */
    struct execution *execution;
    store_execution_fn *done;
    void *arg;
};

static struct context *default_context_find(const struct sandbox *sb, const char *language)
{
    struct context *cx = sb->contexts;

    while (cx && (!cx->is_default || cx->delete_requested || !str_eq(language_kernel_name(&cx->kernel), language)))
        cx = cx->next;
    return cx;
}

static int default_context_create(struct sandbox *sb, const char *language, const char *created_by,
                                  struct context **ret, struct err *err)
{
    struct context *cx = context_new(sb, NULL, language, true);

    (void)str_copy(cx->created_by, sizeof(cx->created_by), created_by);
    if (context_start_kernel(cx, err) < 0) {
        context_free(cx);
        return -1;
    }
    cx->never_ready = true;
    *ret = cx;
    return 0;
}

static int default_context_language(const struct sandbox *sb, const char *wanted, const char **ret, struct err *err)
{
    *ret = language_kernel_language(wanted[0] ? wanted : sb->spec.runtime);
    if (*ret)
        return 0;
    return err_set(err, ERR_RUNTIME_MISSING,
                   "language: sandbox %s has no language for code; use python, node or bash, or run a command", sb->id);
}

/* Takes ex. */
static int default_context_add(struct sandbox *sb, const char *wanted, struct execution *ex, struct err *err)
{
    const char *language = NULL;
    struct context *cx = NULL;
    bool created = false;

    if (default_context_language(sb, wanted, &language, err) < 0) {
        execution_free(ex);
        return -1;
    }
    cx = default_context_find(sb, language);
    created = !cx;
    if (created && default_context_create(sb, language, ex->created_by, &cx, err) < 0) {
        execution_free(ex);
        return -1;
    }
    if (!created && context_get_state(cx) == CONTEXT_DEAD) {
        if (context_start_kernel_again(cx, err) < 0) {
            execution_free(ex);
            return -1;
        }
        cx->reset_unreported = true;
    }
    if (context_add_execution(cx, ex, err) == 0)
        return 0;
    if (created)
        context_free(cx);
    return -1;
}

/* A request that is refused before its call has returned is answered later. */
static void default_context_refuse(const struct default_context_request *o, const struct err *err)
{
    sandbox_refuse(o->services, &(struct sandbox_reply){ .on_execution = o->done, .arg = o->arg }, err);
}

static void default_context_on_sandbox(void *arg, struct sandbox_handle *sandbox UNUSED, const struct err *err)
{
    auto_free struct default_context_request *o = arg;
    struct sandbox *sb = err ? NULL : registry_find(o->services->registry, o->owner, o->sandbox);
    struct err why = { 0 };

    if (!sb) {
        if (!err)
            err_set(&why, ERR_MISSING, "there is no such sandbox");
        default_context_refuse(o, err ? err : &why);
        execution_free(o->execution);
        return;
    }
    if (default_context_add(sb, o->language, o->execution, &why) < 0)
        default_context_refuse(o, &why);
    sandbox_release(sb);
}

static int default_context_check(const struct execution_spec *s, struct err *err)
{
    if (!s->changes)
        return 0;
    return err_set(err, ERR_INVALID,
                   "changes: can only be listed for a process of its own; add isolated: true, or use command");
}

void default_context_execute(struct manager *m, const char *owner, const char *sandbox, const char *id,
                             const struct execution_spec *s, store_execution_fn *done, void *arg)
{
    struct default_context_request *o = mem_new(struct default_context_request);
    struct context_execution_spec call = {
        .code = s->code,
        .timeout_ms = s->timeout_ms,
        .cpu_ms = s->cpu_ms,
        .output_max = s->output_max,
        .env = s->env,
        .cwd = s->cwd,
        .input = s->input        ? s->input
                 : s->input_open ? NULL
                                 : "",
        .input_len = s->input_len,
        .background = s->background,
        .report_only_end = s->report_only_end,
        .created_by = s->created_by,
        .request_id = s->request_id,
    };
    struct err err = { 0 };

    o->services = manager_sandbox_services(m);
    o->done = done;
    o->arg = arg;
    if (default_context_check(s, &err) < 0) {
        default_context_refuse(o, &err);
        free(o);
        return;
    }
    (void)str_copy(o->owner, sizeof(o->owner), owner);
    (void)str_copy(o->sandbox, sizeof(o->sandbox), sandbox);
    (void)str_copy(o->language, sizeof(o->language), s->language ? s->language : "");
    o->execution = context_execution_new(id, &call, done, arg);
    sandbox_acquire_at_once(o->services, owner, sandbox, default_context_on_sandbox, o);
}
