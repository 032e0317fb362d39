/* The handle of a sandbox is valid only in the callback that acquires it, so every step of a job
 * acquires the sandbox again. An acquisition cannot be cancelled: a job that is freed meanwhile
 * stays until it is answered.
 *
 * Reading: the caller needs length and version of a file before its first byte. They come from a
 * stat, and the bytes are read only from the file that was examined: if the name refers to another
 * file by then, or the file was written, the stat is repeated. */
#include "service/sandbox_files.h"

#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "service/sandbox_internal.h"

#define STAT_ATTEMPTS_MAX 8

/* A version identifies one content only after the kernel's clock has passed the file's last change
 * (files_entry.settled). That takes one tick, at most 10 ms, so the stat of a file that was just
 * written is repeated; a file that is written continuously is reported as not settled. */
#define SETTLE_WAIT_NS (1 * NS_PER_MS)
#define SETTLE_WAITS_MAX 12

enum sandbox_files_state {
    SANDBOX_FILES_ACQUIRING,
    SANDBOX_FILES_HOLDING,   /* until manager_release_sandbox */
    SANDBOX_FILES_RELEASED,  /* holds no sandbox: a watch, or the sandbox cannot be used */
    SANDBOX_FILES_CANCELLED, /* freed while it was acquiring */
};

struct sandbox_files_job {
    struct manager *manager;
    enum sandbox_files_state state;
    struct sandbox_files_request request;
    char sandbox[ID_SIZE]; /* a copy, for the release */
    const struct sandbox_files_ops *ops;
    void *arg;
    struct files_job *job; /* of the current step */

    /* read */
    struct files_entry entry; /* without name and target */
    bool is_examined;         /* the next step reads */
    uint64_t offset, length;
    bool has_data;
    int stat_attempts; /* retries after the file changed before it was read */
    int settle_waits;
    struct ev_timer settle_timer;
};

static void sandbox_files_set_state(struct sandbox_files_job *j, enum sandbox_files_state state)
{
    static const char *const names[] = { "acquiring", "holding", "released", "cancelled" };

    log_debug("files of sandbox %s: %s -> %s", j->sandbox, names[j->state], names[state]);
    if (j->state == SANDBOX_FILES_HOLDING)
        manager_release_sandbox(j->manager, j->sandbox);
    j->state = state;
}

static void sandbox_files_fail(const struct sandbox_files_job *j, const struct err *err)
{
    j->ops->files.on_done(j->arg, NULL, err);
}

/* --- reading --- */

static void sandbox_files_acquire(void *arg);

static void sandbox_files_on_stat_entry(void *arg, const struct files_entry *e)
{
    struct sandbox_files_job *j = arg;

    j->entry = *e;
    j->entry.name = j->entry.target = NULL;
}

static void sandbox_files_on_stat_done(void *arg, const struct files_done *d UNUSED, const struct err *err)
{
    struct sandbox_files_job *j = arg;
    struct ev *ev = manager_sandbox_services(j->manager)->ev;

    if (err)
        sandbox_files_fail(j, err);
    else if (j->entry.kind == 'f' && !j->entry.settled && j->settle_waits++ < SETTLE_WAITS_MAX)
        ev_timer_set(ev, &j->settle_timer, ev_now(ev) + SETTLE_WAIT_NS, sandbox_files_acquire, j);
    else
        j->ops->files.on_entry(j->arg, &j->entry);
}

static void sandbox_files_on_read_data(void *arg, const void *data, size_t len)
{
    struct sandbox_files_job *j = arg;

    j->has_data = true;
    j->ops->files.on_data(j->arg, data, len);
}

static void sandbox_files_on_read_done(void *arg, const struct files_done *d, const struct err *err)
{
    struct sandbox_files_job *j = arg;
    struct err changing;

    if (!err || err->id != ERR_BUSY || j->has_data || j->length == 0) {
        j->ops->files.on_done(j->arg, d, err);
    } else if (++j->stat_attempts < STAT_ATTEMPTS_MAX) {
        j->is_examined = false;
        sandbox_files_acquire(j);
    } else if (j->ops->on_changing(j->arg)) {
        sandbox_files_read(j, 0, 0);
    } else {
        err_set(&changing, ERR_EXISTS, "the file changes faster than a range of it can be read; try again");
        sandbox_files_fail(j, &changing);
    }
}

static int sandbox_files_start_read(struct sandbox_files_job *j, struct sandbox_handle *b, struct err *err)
{
    static const struct files_ops stat_ops = { .on_entry = sandbox_files_on_stat_entry,
                                               .on_done = sandbox_files_on_stat_done };
    static const struct files_ops read_ops = { .on_data = sandbox_files_on_read_data,
                                               .on_done = sandbox_files_on_read_done };
    struct files_request r = { FILES_OP_READ, j->request.files.path, .offset = j->offset, .length = j->length };

    if (!j->is_examined)
        r = (struct files_request){ FILES_OP_STAT, r.path };
    else if (j->length > 0)
        r.seen = &j->entry;
    return files_open(b, &r, j->is_examined ? &read_ops : &stat_ops, j, &j->job, err);
}

void sandbox_files_read(struct sandbox_files_job *j, uint64_t offset, uint64_t length)
{
    j->is_examined = true;
    j->offset = offset;
    j->length = length;
    sandbox_files_acquire(j);
}

/* --- jobs --- */

static int sandbox_files_start(struct sandbox_files_job *j, struct sandbox_handle *b, struct err *err)
{
    if (j->request.files.operation == FILES_OP_READ)
        return sandbox_files_start_read(j, b, err);
    return files_open(b, &j->request.files, &j->ops->files, j->arg, &j->job, err);
}

static void sandbox_files_on_acquired(void *arg, struct sandbox_handle *b, const struct err *err)
{
    struct sandbox_files_job *j = arg;
    bool cancelled = j->state == SANDBOX_FILES_CANCELLED;
    struct err why = { 0 };

    sandbox_files_set_state(j, err ? SANDBOX_FILES_RELEASED : SANDBOX_FILES_HOLDING);
    if (cancelled) {
        sandbox_files_free(j);
    } else if (err) {
        sandbox_files_fail(j, err);
    } else if (sandbox_files_start(j, b, &why) < 0) {
        sandbox_files_fail(j, &why);
    } else if (j->ops->on_start) {
        j->ops->on_start(j->arg);
    } else if (j->request.files.operation == FILES_OP_WATCH) {
        sandbox_files_set_state(j, SANDBOX_FILES_RELEASED);
    }
}

static void sandbox_files_acquire(void *arg)
{
    struct sandbox_files_job *j = arg;

    files_free(take_ptr(&j->job));
    sandbox_files_set_state(j, SANDBOX_FILES_ACQUIRING);
    manager_acquire_sandbox(j->manager, j->request.owner, j->sandbox, sandbox_files_on_acquired, j);
}

void sandbox_files_open(struct manager *m, const struct sandbox_files_request *request,
                        const struct sandbox_files_ops *ops, void *arg, struct sandbox_files_job **ret)
{
    struct sandbox_files_job *j = mem_new(struct sandbox_files_job);

    j->manager = m;
    j->request = *request;
    str_copy(j->sandbox, sizeof(j->sandbox), request->sandbox);
    j->ops = ops;
    j->arg = arg;
    *ret = j;
    sandbox_files_acquire(j);
}

size_t sandbox_files_send(struct sandbox_files_job *j, const void *data, size_t len)
{
    return files_send(j->job, data, len);
}

void sandbox_files_send_end(struct sandbox_files_job *j)
{
    files_send_end(j->job);
}

void sandbox_files_hold_credit(struct sandbox_files_job *j, bool hold)
{
    files_hold_credit(j->job, hold);
}

void sandbox_files_free(struct sandbox_files_job *j)
{
    if (!j)
        return;
    files_free(take_ptr(&j->job));
    ev_timer_clear(manager_sandbox_services(j->manager)->ev, &j->settle_timer);
    if (j->state == SANDBOX_FILES_ACQUIRING) {
        sandbox_files_set_state(j, SANDBOX_FILES_CANCELLED);
        return;
    }
    sandbox_files_set_state(j, SANDBOX_FILES_RELEASED);
    free(j);
}
