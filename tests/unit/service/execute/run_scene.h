/* run_scene.h - runs of an executor, step by step. */
#pragma once

#include "tests/unit/service/scene_rows.h"

/* One request, and how it ended. */
struct client {
    struct run *run;
    int ends, starts;
    bool cancels_at_start;
    char id[ID_SIZE]; /* streamed */
    struct err err;   /* id 0: it has a result */
    char json[8192];
    bool from_cache, recycled;
    enum pool_result pool_result;
    char out[256], events[512]; /* streamed */
};

static inline void on_run_started(void *arg, const char *id, const char *sandbox UNUSED)
{
    struct client *c = arg;

    c->starts++;
    str_copy(c->id, sizeof(c->id), id);
    if (c->cancels_at_start)
        run_cancel(take_ptr(&c->run));
}

static inline void on_run_output(void *arg, int channel UNUSED, const void *data, size_t len)
{
    struct client *c = arg;

    strncat(c->out, data, min_size(len, sizeof(c->out) - strlen(c->out) - 1));
}

static inline void on_run_event(void *arg, const char *type, const struct buf *json UNUSED)
{
    struct client *c = arg;

    strncat(c->events, type, sizeof(c->events) - strlen(c->events) - 1);
}

static inline void on_run_end(void *arg, const struct err *err, const struct run_result *r)
{
    struct client *c = arg;

    c->ends++;
    c->run = NULL;
    assert_true(!err != !r);
    c->err = err ? *err : (struct err){ 0 };
    if (!r)
        return;
    snprintf(c->json, sizeof(c->json), "%.*s", (int)r->json->len, r->json->data);
    c->from_cache = r->from_cache;
    c->recycled = r->recycled;
    c->pool_result = r->pool_result;
}

static const struct run_file input_file = { .path = (char *)"/workspace/in", .data = "data", .len = 4 };
static const char *const output_paths[] = { "/workspace/out", NULL };

/* A request that passes through every step: a file to write, a file to collect. */
static const struct run_request full_command = {
    .argv = true_argv, .files = &input_file, .nfiles = 1, .outputs = output_paths
};
static const struct run_request full_code = {
    .code = "echo", .language = "bash", .files = &input_file, .nfiles = 1, .outputs = output_paths
};
static const struct run_request plain_command = { .argv = true_argv };
static const struct run_request plain_code = { .code = "echo", .language = "bash" };

static inline int submit_spec(struct scene *s, struct client *c, const struct run_request *like, struct spec *spec)
{
    static const struct run_ops ops = {
        .on_started = on_run_started, .on_output = on_run_output, .on_event = on_run_event, .on_end = on_run_end
    };
    struct run_request req = *like;

    *c = (struct client){ 0 };
    req.owner = like->owner ? like->owner : ME;
    req.spec = spec;
    req.timeout_ms = like->timeout_ms ? like->timeout_ms : 10000;
    req.output_max = like->output_max ? like->output_max : 1000;
    int rc = executor_run(s->executor, &req, &ops, c, &c->run, &c->err);
    assert_int_equal(c->ends, 0); /* on_end never runs inside the call */
    spec_done(spec);
    return rc;
}

static inline int submit(struct scene *s, struct client *c, const struct run_request *like)
{
    struct spec spec;

    scene_spec(&spec);
    return submit_spec(s, c, like, &spec);
}

enum run_step {
    STEP_WAITING,   /* in the queue, after another run */
    STEP_CREATING,  /* J_CREATE is not answered */
    STEP_STAGING,   /* WRITE is not answered */
    STEP_STARTING,  /* EXEC is not answered */
    STEP_RUNNING,   /* the program or the code runs */
    STEP_GATHERING, /* READ is not answered */
    STEP_DONE,      /* the result is delivered; the sandbox is not removed */
};

static inline void runtime_entry(struct scene *s, uint32_t stream, const char *path)
{
    static struct rt_entry e;
    uint8_t out[9000];
    struct pack p;

    e = (struct rt_entry){ .kind = 'f', .mode = 0644, .size = 4 };
    str_copy(e.name, sizeof(e.name), path);
    pack_init(&p, out, sizeof(out));
    rt_entry_pack(&p, &e);
    runtime_says(&s->k, FRAME_DONE, 0, stream, out, p.len);
}

/* The sandbox of a run becomes ready. */
static inline void run_sandbox_ready(struct scene *s)
{
    jailer_made(s);
    runtime_greets(s);
    runtime_claimed(&s->k, ALL_INSIDE, 3);
}

static inline void run_program_begins(struct scene *s, const struct run_request *req)
{
    runtime_started(&s->k);
    if (!req->code)
        return;
    kernel_ready(s);
    expect_kernel_line(s, "\"op\":\"execute\"");
}

/* The id of the code that runs, from its request. The caller frees it. */
static inline char *taken_code_id(void)
{
    auto_free char *line = str_dup_n((const char *)got.f.data, got.f.len);
    const char *id = strstr(line, "\"id\":\"");

    assert_non_null(id);
    return str_dup_n(id + 6, ID_LEN);
}

static char run_code_id[ID_SIZE]; /* of the last code that began */

/* Continues a run whose J_CREATE was taken. */
static inline void run_continue(struct scene *s, const struct run_request *req, enum run_step to)
{
    if (to >= STEP_STAGING) {
        run_sandbox_ready(s);
        if (req->nfiles)
            expect_runtime(s, FRAME_WRITE);
    }
    if (to >= STEP_STARTING) {
        if (req->nfiles)
            runtime_done(&s->k, got.f.stream, &(struct rt_done){ .bytes = 4, .files = 1 });
        expect_runtime(s, FRAME_EXEC);
        s->k.stream = got.f.stream;
    }
    if (to >= STEP_RUNNING) {
        run_program_begins(s, req);
        if (req->code) {
            auto_free char *id = taken_code_id();
            str_copy(run_code_id, sizeof(run_code_id), id);
        }
    }
    if (to >= STEP_GATHERING) {
        if (req->code)
            kernel_finishes(s, run_code_id, "ok");
        else
            runtime_exit(&s->k, 0, 0);
        if (req->outputs)
            expect_runtime(s, FRAME_READ);
    }
    if (to == STEP_DONE && req->outputs) {
        uint32_t stream = got.f.stream;

        runtime_says(&s->k, FRAME_DATA, 0, stream, "text", 4);
        runtime_entry(s, stream, "/workspace/out");
    }
}

/* Submits a request and brings its run to a step. first: for STEP_WAITING, the run before it, in an
 * executor with one slot. */
static inline void run_to(struct scene *s, struct client *c, const struct run_request *req, enum run_step to,
                          struct client *first)
{
    if (to == STEP_WAITING) {
        assert_int_equal(submit(s, first, &plain_command), 0);
        expect(s, FRAME_J_CREATE);
    }
    assert_int_equal(submit(s, c, req), 0);
    if (to == STEP_WAITING)
        return;
    expect(s, FRAME_J_CREATE);
    run_continue(s, req, to);
}

/* Ends all runs and lets the jailer remove their sandboxes. */
static inline int drain_runs(struct scene *s)
{
    struct executor_stats stats;
    uint64_t end = now_ms() + 5000 * slow_factor();
    int destroyed = 0;

    do {
        ev_turn(s->k.ev, 2);
        destroyed += obey(s);
        executor_stats(s->executor, &stats);
    } while (stats.waiting + stats.running + stats.ending > 0 && now_ms() < end);
    assert_int_equal(stats.waiting + stats.running + stats.ending, 0);
    assert_int_equal(stats.held_bytes, 0);
    settle(s);
    return destroyed;
}

static inline void run_ended(struct scene *s, struct client *c)
{
    turn_until(&s->k, &c->ends);
    settle(s);
    assert_int_equal(c->ends, 1);
}

static inline void assert_json(const struct client *c, const char *text)
{
    if (!strstr(c->json, text))
        fail_msg("%s is not in %s (%s)", text, c->json, c->err.msg);
}
