/* What a new manager finds: rows that say "alive", and a jailer that knows what is.
 *
 * First the tenants are read, then the living rows, sandboxes and then executions; then, as soon as there is a jailer,
 * each sandbox is adopted under its own id. One that the jailer does not know has ended meanwhile, and its row says so
 * from now on. What the jailer knows and no row does was being made or removed when the last manager died, and is
 * destroyed.
 *
 * A frozen sandbox cannot answer, so each is thawed for the moment of its adoption: also one that is not paused, since
 * the last manager may have died after it had it frozen and before it could write that down. */
#include "sandbox/contexts.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* --- loading --- */

static void load_sandboxes(struct manager *m, const char *cursor);
static void load_executions(struct manager *m, const char *cursor);

static void load_sandbox(struct manager *m, const struct store_sandbox *row)
{
    struct sb *sb = sb_new(m, row->id, row->owner);
    struct err err = { 0 };

    sb->state = row->state == STORE_SB_CREATING ? SB_CREATING : SB_LOADED;
    sb->inserted = true;
    sb->created_ms = row->created_ms;
    sb->expires_ms = row->expires_ms;
    sb->cpu_us = sb->noted_cpu_us = row->cpu_us;
    if (sb_read_spec(sb, row->spec_json, &err) < 0) {
        log_error("sandbox %s: its row cannot be read: %s", sb->id, err.msg);
        spec_done(&sb->spec);
        spec_init(&sb->spec);
    }
    (void)str_copy(sb->spec.created_by, sizeof(sb->spec.created_by), row->created_by ? row->created_by : "");
    if (sb->spec.pinning)
        sb_pinned(sb, sb->spec.limits.v[LIMIT_CPUSET]);
    sb_amounts(&sb->spec, sb->holds);
    share_hold(sb->share, sb->holds);
    if (row->state != STORE_SB_PAUSED)
        sb->paused_at_ms = 0;
    else if (!sb->paused_at_ms)
        sb->paused_at_ms = mono_ms(m);
}

static void load_failed(struct manager *m, const struct err *err)
{
    log_error("what the store knows cannot be read: %s", err->msg);
    snprintf(m->not_ready, sizeof(m->not_ready), "the store cannot be read: %.100s", err->msg);
}

static void on_sandboxes(void *arg, const struct err *err, const struct store_sandbox *rows, size_t n, const char *next)
{
    struct manager *m = arg;

    if (err) {
        load_failed(m, err);
        return;
    }
    for (size_t i = 0; i < n; i++)
        load_sandbox(m, &rows[i]);
    if (next)
        load_sandboxes(m, next);
    else
        load_executions(m, NULL);
}

static void load_sandboxes(struct manager *m, const char *cursor)
{
    struct store_list q = { .owner = STORE_ANY_OWNER,
                            .states = STORE_SB_LIVE,
                            .cursor = cursor,
                            .limit = STORE_LIST_MAX,
                            .oldest_first = true };

    store_sandbox_list(m->store, &q, on_sandboxes, m);
}

static int read_request(struct ex *ex, const char *text, struct err *err)
{
    auto_json *root = NULL;
    const char *input = NULL, *context = NULL, *request = NULL;
    uint64_t stream = 0, rows = 0, cols = 0;

    if (!text)
        return err_set(err, ERR_STORE_CORRUPT, "it has no request");
    if (body_parse(text, strlen(text), &root, err) < 0 ||
        body_u64(root, "", "stream", 1, UINT32_MAX, &stream, NULL, err) < 0 ||
        body_u64(root, "", "timeoutMs", 0, UINT64_MAX, &ex->spec.wall_ms, NULL, err) < 0 ||
        body_u64(root, "", "cpuTimeMs", 0, UINT64_MAX, &ex->spec.cpu_ms, NULL, err) < 0 ||
        body_u64(root, "", "outputBytes", 0, UINT64_MAX, &ex->spec.output_max, NULL, err) < 0 ||
        body_u64(root, "", "pausedMs", 0, UINT64_MAX, &ex->paused_ms, NULL, err) < 0 ||
        body_u64(root, "", "createdMonoMs", 0, UINT64_MAX, &ex->created_mono_ms, NULL, err) < 0 ||
        body_u64(root, "", "cpuBaseNs", 0, UINT64_MAX, &ex->cpu_base_ns, NULL, err) < 0 ||
        body_bool(root, "", "changes", &ex->spec.changes, err) < 0 ||
        body_bool(root, "", "stdinOpen", &ex->input_open, err) < 0 ||
        body_bool(root, "", "tty", &ex->spec.tty, err) < 0 ||
        body_u64(root, "", "rows", 0, UINT16_MAX, &rows, NULL, err) < 0 ||
        body_u64(root, "", "cols", 0, UINT16_MAX, &cols, NULL, err) < 0 ||
        body_u64(root, "", "ring", 0, UINT64_MAX, &ex->ring, NULL, err) < 0 ||
        body_text(root, "", "context", 1, ID_SIZE - 1, &context, err) < 0 ||
        body_text(root, "", "requestId", 1, RECEIPT_REQUEST_MAX, &request, err) < 0 ||
        body_text(root, "", "stdin", 0, BODY_SIZE_MAX, &input, err) < 0)
        return -1;
    if (context)
        call_name(ex, context);
    (void)str_copy(ex->request, sizeof(ex->request), request ? request : "");
    ex->stream = (uint32_t)stream;
    ex->spec.rows = (uint16_t)rows;
    ex->spec.cols = (uint16_t)cols;
    if (input) {
        ex->input = str_dup(input);
        ex->input_len = strlen(input);
    }
    return 0;
}

static void on_orphan_stored(void *arg UNUSED, const struct err *err, const struct store_execution *row UNUSED)
{
    if (err)
        log_warn("the end of a lost execution was not written down: %s", err->msg);
}

/* Of a sandbox that has ended: the end was committed, this one's was not. */
static void end_orphan(struct manager *m, const struct store_execution *row)
{
    struct store_execution end = { .state = STORE_EX_FAILED, .ended_ms = now_ms() };
    struct err lost;

    err_set(&lost, ERR_LOST, "its sandbox ended while the server was away");
    auto_free char *why = why_json(&lost);
    memcpy(end.id, row->id, sizeof(end.id));
    end.ended_by = (char *)ended_by_name(ENDED_LOST);
    end.error_json = why;
    output_sizes(m, row->id, end.out_bytes);
    store_execution_update(m->store, row->owner, &end, STORE_EX_SET_STATE | STORE_EX_SET_END | STORE_EX_SET_OUTPUT,
                           &(struct store_when){ .states = STORE_EX_LIVE }, on_orphan_stored, NULL);
}

static void load_execution(struct manager *m, const struct store_execution *row)
{
    struct sb *sb = sb_find(m, STORE_ANY_OWNER, row->sandbox);
    struct err err = { 0 };

    if (!sb) {
        end_orphan(m, row);
        return;
    }
    struct ex *ex = ex_new(sb, row->id);
    ex->created_ms = row->created_ms;
    ex->started_ms = row->started_ms;
    ex->background = row->background;
    (void)str_copy(ex->created_by, sizeof(ex->created_by), row->created_by ? row->created_by : "");
    ex->inserted = true;
    if (read_request(ex, row->request_json, &err) < 0)
        log_error("execution %s: its row cannot be read: %s", ex->id, err.msg);
    if (output_load(ex) < 0) /* tried again when it is resumed */
        log_warn("output of %s: %s", ex->id, strerror(errno));
}

static void on_executions(void *arg, const struct err *err, const struct store_execution *rows, size_t n,
                          const char *next)
{
    struct manager *m = arg;

    if (err) {
        load_failed(m, err);
        return;
    }
    for (size_t i = 0; i < n; i++)
        load_execution(m, &rows[i]);
    if (next) {
        load_executions(m, next);
        return;
    }
    m->loaded = true;
    output_sweep(m);
    if (m->engine)
        recover_adopt(m);
}

static void load_executions(struct manager *m, const char *cursor)
{
    struct store_list q = { .owner = STORE_ANY_OWNER,
                            .states = STORE_EX_LIVE,
                            .cursor = cursor,
                            .limit = STORE_LIST_MAX,
                            .oldest_first = true };

    store_execution_list(m->store, &q, on_executions, m);
}

static void on_tenants(struct manager *m)
{
    load_sandboxes(m, NULL);
}

void recover_start(struct manager *m)
{
    tenants_load(m, on_tenants, load_failed);
}

/* --- adopting --- */

static void on_thawed(void *arg UNUSED, const struct err *err UNUSED)
{
}

static void adopt(struct sb *sb)
{
    struct manager *m = sb->m;
    uint64_t now = sb->expires_mono_ms ? mono_ms(m) : now_ms();
    uint64_t until = sb->expires_mono_ms ? sb->expires_mono_ms : sb->expires_ms;
    uint64_t left = until > now ? until - now : 1;
    struct box_spec box;
    struct err err = { 0 };

    spec_box(&sb->spec, &box);
    box.limits.v[LIMIT_LIFETIME] = min_u64(left, limit_info(LIMIT_LIFETIME)->max);
    box.limits.v[LIMIT_WALL] = min_u64(box.limits.v[LIMIT_WALL], box.limits.v[LIMIT_LIFETIME]);
    if (box_adopt(m->engine, sb->id, &box, &sb_box_ops, sb, &sb->box, &err) < 0) {
        sb_end(sb, ENDED_LOST, &err);
        recover_resolved(m);
        return;
    }
    box_thaw(sb->box, on_thawed, sb);
}

static void on_refrozen(void *arg, const struct err *err)
{
    struct sb *sb = arg;

    if (sb->state != SB_LOADED)
        return;
    if (err)
        log_warn("sandbox %s could not be paused again: %s", sb->id, err->msg);
    sb->state = err ? SB_RUNNING : SB_PAUSED;
    sb_busy(sb);
    recover_resolved(sb->m);
}

void recover_adopted(struct sb *sb)
{
    sb->m->stats.adopted++;
    if (sb->share->barred) {
        struct manager *m = sb->m;

        sb->state = SB_RUNNING;
        sb_end_barred(sb);
        recover_resolved(m);
        return;
    }
    contexts_adopt(sb);
    for (struct ex *ex = sb->execs, *next; ex; ex = next) {
        struct err err = { 0 };

        next = ex->next;
        if (ex->context[0])
            continue;
        if (ex_resume(ex, &err) < 0)
            ex_end(ex, STORE_EX_FAILED, NULL, &err);
    }
    box_resume_end(sb->box);
    if (sb->paused_at_ms) {
        box_freeze(sb->box, on_refrozen, sb);
        return;
    }
    sb->state = SB_RUNNING;
    sb_busy(sb);
    recover_resolved(sb->m);
}

static void on_list(void *arg, const char (*ids)[ID_SIZE], size_t n, const struct err *err)
{
    struct manager *m = arg;

    if (err) {
        log_warn("the jailer's list: %s", err->msg);
        pools_engine(m->pools, m->engine);
        return;
    }
    for (size_t i = 0; i < n; i++)
        if (!sb_find(m, STORE_ANY_OWNER, ids[i])) {
            log_info("sandbox %s belongs to nobody and is removed", ids[i]);
            engine_destroy(m->engine, ids[i]);
        }
    if (n == ENGINE_LIST_MAX)
        engine_list(m->engine, ids[n - 1], on_list, m);
    else
        pools_engine(m->pools, m->engine); /* not before: what is made ahead belongs to nobody, too */
}

/* The last of them, and what is left over belongs to nobody. */
void recover_resolved(struct manager *m)
{
    if (m->adopting > 0 && --m->adopting == 0 && m->engine)
        engine_list(m->engine, NULL, on_list, m);
}

static void end_unmade(struct sb *sb)
{
    struct err why;

    err_set(&why, ERR_LOST, "the server was restarted before it was ready");
    engine_destroy(sb->m->engine, sb->id);
    sb_end(sb, ENDED_LOST, &why);
}

void recover_adopt(struct manager *m)
{
    size_t n = 0;
    struct sb **all = mem_new_array(struct sb *, m->nsbs + 1);

    m->adopting = 1; /* our own, so that none of them is the last before all were begun */
    for (size_t i = 0; i < SB_BUCKETS; i++)
        for (struct sb *sb = m->sbs[i]; sb; sb = sb->next)
            if (!sb->box && !sb->turn.waits && (sb->state == SB_LOADED || sb->state == SB_CREATING))
                all[n++] = sb;
    for (size_t i = 0; i < n; i++) {
        m->adopting += all[i]->state == SB_LOADED;
        if (all[i]->state == SB_LOADED)
            adopt(all[i]);
        else
            end_unmade(all[i]);
    }
    free(all);
    recover_resolved(m);
}
