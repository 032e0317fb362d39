/* context_scene.h - a sandbox with a context, whose language kernel is scripted. */
#pragma once

#include "tests/unit/service/scene_rows.h"

#include "service/context.h"

#define CONTEXT "cxaaaaaaaaaaaaaaaaaaaa"
#define FORK "cxbbbbbbbbbbbbbbbbbbbb"

struct context_answer {
    int n;
    struct err err; /* id 0: success */
    struct context_info info;
    char outcome[16];
};

static inline void on_context(void *arg, const struct err *err, const struct context_info *info)
{
    struct context_answer *a = arg;

    a->n++;
    assert_true(!err != !info);
    a->err = err ? *err : (struct err){ 0 };
    if (!info)
        return;
    a->info = *info;
    snprintf(a->outcome, sizeof(a->outcome), "%s", info->outcome ? info->outcome : "");
}

/* Requests a context, up to the EXEC of its language kernel. */
static inline void context_request(struct scene *s, struct context_answer *a)
{
    *a = (struct context_answer){ 0 };
    manager_context_create(s->m, ME, BOX, CONTEXT, &(struct context_spec){ .language = "bash" }, on_context, a);
    expect_runtime(s, FRAME_EXEC);
    s->k.stream = got.f.stream;
}

/* Opens a scene with an idle context. */
static inline void context_open(struct scene *s)
{
    struct context_answer a;

    scene_open(s);
    create_running(s);
    context_request(s, &a);
    runtime_started(&s->k);
    kernel_ready(s);
    answered(s, &a.n);
    assert_int_equal(a.err.id, 0);
}

static inline void context_run(struct scene *s, const char *id, const char *code, uint64_t timeout_ms,
                               struct execution_answer *a)
{
    *a = (struct execution_answer){ 0 };
    manager_context_execute(s->m, ME, BOX, CONTEXT, id,
                            &(struct context_execution_spec){ .code = code, .timeout_ms = timeout_ms }, on_execution,
                            a);
}

/* Runs EXECUTION in the context up to its request to the language kernel. */
static inline void context_run_begin(struct scene *s, const char *code, uint64_t timeout_ms)
{
    struct execution_answer a;

    context_run(s, EXECUTION, code, timeout_ms, &a);
    expect_kernel_line(s, "\"op\":\"execute\",\"id\":\"" EXECUTION "\"");
    answered(s, &a.n);
    assert_int_equal(a.err.id, 0);
}

/* Reads the context from the list; false if it is not in it. */
static inline bool context_read(struct scene *s, const char *id, struct context_info *ret)
{
    static struct context_info all[CONTEXTS_LISTED_MAX];
    struct err err = { 0 };
    size_t n = 0;

    assert_int_equal(manager_contexts(s->m, ME, BOX, all, &n, &err), 0);
    for (size_t i = 0; i < n; i++)
        if (str_eq(all[i].id, id)) {
            *ret = all[i];
            return true;
        }
    return false;
}

static inline void assert_context_state(struct scene *s, enum context_state state)
{
    struct context_info info;

    assert_true(context_read(s, CONTEXT, &info));
    assert_int_equal(info.state, state);
}
