/* scene_rows.h - sandboxes and executions of a scene: requests step by step, answers and rows. */
#pragma once

#include "tests/unit/service/scene.h"

#define BOX "sbaaaaaaaaaaaaaaaaaaaa"
#define OTHER_BOX "sbbbbbbbbbbbbbbbbbbbbb"
#define EXECUTION "exaaaaaaaaaaaaaaaaaaaa"
#define OTHER_EXECUTION "exbbbbbbbbbbbbbbbbbbbb"
#define ME "me"

/* --- sandboxes --- */

struct sandbox_answer {
    int n;
    struct err err; /* id 0: success */
    enum store_sandbox_state state;
    char id[ID_SIZE], ended_by[16];
    uint64_t expires_ms;
};

static inline void on_sandbox(void *arg, const struct err *err, const struct store_sandbox *row)
{
    struct sandbox_answer *a = arg;

    a->n++;
    assert_true(!err != !row);
    a->err = err ? *err : (struct err){ 0 };
    if (!row)
        return;
    a->state = row->state;
    a->expires_ms = row->expires_ms;
    memcpy(a->id, row->id, sizeof(a->id));
    str_copy(a->ended_by, sizeof(a->ended_by), row->ended_by ? row->ended_by : "");
}

static inline void read_sandbox(struct scene *s, const char *id, struct sandbox_answer *a)
{
    *a = (struct sandbox_answer){ 0 };
    store_sandbox_get(s->store, STORE_ANY_OWNER, id, on_sandbox, a);
    answered(s, &a->n);
}

static inline void assert_sandbox(struct scene *s, const char *id, enum store_sandbox_state state, const char *ended_by)
{
    struct sandbox_answer a;

    read_sandbox(s, id, &a);
    assert_int_equal(a.err.id, 0);
    assert_int_equal(a.state, state);
    assert_string_equal(a.ended_by, ended_by);
}

static inline void scene_spec(struct spec *spec)
{
    spec_init(spec);
    str_copy(spec->runtime, sizeof(spec->runtime), "sh");
    assert_int_equal(spec_finish(spec, NULL), 0);
}

static inline void create_as(struct scene *s, const char *owner, const char *id, struct sandbox_answer *a)
{
    struct spec spec;

    scene_spec(&spec);
    *a = (struct sandbox_answer){ 0 };
    manager_create(s->m, owner, id, &spec, NULL, NULL, on_sandbox, a);
}

/* The steps of a creation; a test stops after one of them. */
enum create_step {
    CREATE_ASKED,   /* J_CREATE is not answered */
    CREATE_MADE,    /* HELLO of the engine is not answered */
    CREATE_GREETED, /* CLAIM is not answered */
    CREATE_CLAIMED, /* J_KEEP is not answered */
    CREATE_RUNNING,
};
#define CREATE_STEPS 5

/* Continues a creation after J_CREATE. */
static inline void create_continue(struct scene *s, enum create_step to)
{
    if (to >= CREATE_MADE)
        jailer_made(s);
    if (to >= CREATE_GREETED)
        runtime_greets(s);
    if (to >= CREATE_CLAIMED) {
        runtime_claimed(&s->k, ALL_INSIDE, 3);
        expect(s, FRAME_J_KEEP);
    }
    if (to == CREATE_RUNNING)
        jailer_ok(&s->k);
}

static inline void create_to(struct scene *s, enum create_step to, struct sandbox_answer *a)
{
    create_as(s, ME, BOX, a);
    expect(s, FRAME_J_CREATE);
    create_continue(s, to);
    if (to < CREATE_RUNNING)
        return;
    answered(s, &a->n);
    assert_int_equal(a->err.id, 0);
}

static inline void create_running_spec(struct scene *s, struct spec *spec)
{
    struct sandbox_answer a = { 0 };

    manager_create(s->m, ME, BOX, spec, NULL, NULL, on_sandbox, &a);
    expect(s, FRAME_J_CREATE);
    create_continue(s, CREATE_RUNNING);
    answered(s, &a.n);
    assert_int_equal(a.err.id, 0);
}

static inline void create_running(struct scene *s)
{
    struct sandbox_answer a;

    create_to(s, CREATE_RUNNING, &a);
}

/* Deletes a sandbox with the help of the jailer. */
static inline void delete_sandbox(struct scene *s, const char *id)
{
    struct sandbox_answer a = { 0 };

    manager_delete(s->m, STORE_ANY_OWNER, id, on_sandbox, &a);
    obey_until(s, &a.n);
    answered(s, &a.n);
    assert_int_equal(a.err.id, 0);
}

static inline uint64_t quota_used(struct scene *s, const char *tenant, enum store_quota quota)
{
    uint64_t used[STORE_QUOTA_COUNT];

    tenant_quotas_used(manager_quotas(s->m), tenant, used);
    return used[quota];
}

static inline void set_quota(struct scene *s, const char *tenant, enum store_quota quota, uint64_t limit)
{
    struct store_tenant row = { 0 };

    str_copy(row.name, sizeof(row.name), tenant);
    row.quota[quota] = limit;
    tenant_quotas_set(manager_quotas(s->m), &row);
}

static inline void suspend(struct scene *s, const char *tenant)
{
    struct store_tenant row = { .suspended_ms = 1 };

    str_copy(row.name, sizeof(row.name), tenant);
    tenant_quotas_set(manager_quotas(s->m), &row);
}

static inline size_t live_sandboxes(struct scene *s)
{
    struct live_sandbox all[8];

    return live_sandboxes_list(manager_live_sandboxes(s->m), STORE_ANY_OWNER, all, ARRAY_LEN(all));
}

/* --- executions --- */

struct execution_answer {
    int n;
    struct err err; /* id 0: success */
    enum store_execution_state state;
    char id[ID_SIZE], ended_by[16];
    char error[200]; /* error_json, cut */
    int exit_code;   /* -1: none */
    int signal;
    uint64_t out_bytes[3], dropped[3], started_ms;
    char receipt[120]; /* beginning of the receipt; "": none */
};

static inline void on_execution(void *arg, const struct err *err, const struct store_execution *row)
{
    struct execution_answer *a = arg;

    a->n++;
    assert_true(!err != !row);
    a->err = err ? *err : (struct err){ 0 };
    if (!row)
        return;
    a->state = row->state;
    memcpy(a->id, row->id, sizeof(a->id));
    a->exit_code = row->has_exit_code ? row->exit_code : -1;
    a->signal = row->signal;
    a->started_ms = row->started_ms;
    memcpy(a->out_bytes, row->out_bytes, sizeof(a->out_bytes));
    memcpy(a->dropped, row->dropped, sizeof(a->dropped));
    snprintf(a->ended_by, sizeof(a->ended_by), "%s", row->ended_by ? row->ended_by : "");
    snprintf(a->error, sizeof(a->error), "%s", row->error_json ? row->error_json : "");
    snprintf(a->receipt, sizeof(a->receipt), "%s", row->receipt_json ? row->receipt_json : "");
}

static inline void read_execution(struct scene *s, const char *id, struct execution_answer *a)
{
    *a = (struct execution_answer){ 0 };
    store_execution_get(s->store, STORE_ANY_OWNER, id, on_execution, a);
    answered(s, &a->n);
}

static inline void assert_execution(struct scene *s, const char *id, enum store_execution_state state,
                                    const char *ended_by)
{
    struct execution_answer a;

    read_execution(s, id, &a);
    assert_int_equal(a.err.id, 0);
    assert_int_equal(a.state, state);
    assert_string_equal(a.ended_by, ended_by);
}

/* Requests an execution in BOX, up to its EXEC. Without a program: `true`. */
static inline void execute(struct scene *s, const char *id, const struct execution_spec *spec,
                           struct execution_answer *a)
{
    struct execution_spec call = *spec;

    if (!call.argv && !call.code)
        call.argv = true_argv;
    *a = (struct execution_answer){ 0 };
    manager_execute(s->m, ME, BOX, id, &call, on_execution, a);
    expect_runtime(s, FRAME_EXEC);
    s->k.stream = got.f.stream;
}

/* The same, up to a running program whose row is committed. */
static inline void execute_running(struct scene *s, const char *id, const struct execution_spec *spec)
{
    struct execution_answer a;

    execute(s, id, spec, &a);
    runtime_started(&s->k);
    answered(s, &a.n);
    assert_int_equal(a.err.id, 0);
}

static inline void assert_output(struct scene *s, const char *id, int channel, const char *text)
{
    char data[4096] = "";
    auto_fd int fd = manager_open_output(s->m, id, channel);

    if (fd < 0 && !*text)
        return;
    assert_true(fd >= 0);
    ssize_t n = pread(fd, data, sizeof(data) - 1, 0);
    assert_true(n >= 0);
    data[n] = '\0';
    assert_string_equal(data, text);
}
