/* One writer thread, and lines that gather while it writes.
 *
 * The loop formats the lines: it alone advances the chain, so the order of the lines is the order
 * of the calls. The writer receives a batch and writes it with one call while the next batch
 * gathers, so a hundred records at once cost one write. A failed write is retried from the byte it
 * reached until it succeeds: lines are never dropped or skipped, so the server itself never causes
 * a gap in the chain.
 *
 * Disk space is reserved beyond the end of the file (fallocate with FALLOC_FL_KEEP_SIZE). When no
 * more can be reserved, the trail is not full yet: the reserved space is for the records of
 * requests in progress and of requests that end or remove objects. This state is AUDIT_FULL.
 *
 * 1. `batch` and `file` belong to the writer while `work.on`, otherwise to the loop.
 * 2. written <= head.seq; the records between them are in `batch` or `pending`, in order.
 * 3. Every file except the last ends with a checkpoint marked `last`. */
#include "server/audit/audit_internal.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define SIGN_RECORDS 1000u
#define SIGN_NS (60 * NS_PER_S)
#define QUIET_NS (1 * NS_PER_S)   /* after this time without records, sign them: no later wake-up is needed */
#define LAZY_NS (200 * NS_PER_MS) /* most are written earlier, together with a record that a response waits for */
#define RETRY_NS (1 * NS_PER_S)
#define AUDIT_RESERVE_AHEAD (1 * MIB)  /* minimum reserved beyond the end of the file */
#define AUDIT_RESERVE_STEP (4 * MIB)   /* reserved per call */
#define AUDIT_RESERVE_LEAST (64 * KIB) /* AUDIT_FULL becomes AUDIT_CLOSED below this */

/* --- the writer thread: its functions use only their arguments and immutable fields --- */

static int audit_file_write_batch(struct audit_batch *b, struct audit_file *f)
{
    while (b->done < b->data.len) {
        ssize_t n = write(f->fd, b->data.data + b->done, b->data.len - b->done);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        b->done += (size_t)n;
        f->size += (uint64_t)n;
    }
    return 0;
}

static void audit_file_reserve(struct audit_file *f)
{
    if (f->fallocate_unsupported || (f->reserved_end >= f->size + AUDIT_RESERVE_AHEAD && !f->reserve_failed))
        return;
    if (fallocate(f->fd, FALLOC_FL_KEEP_SIZE, (off_t)f->size, AUDIT_RESERVE_STEP) == 0) {
        f->reserved_end = f->size + AUDIT_RESERVE_STEP;
        f->reserve_failed = false;
    } else if (errno == ENOSPC || errno == EDQUOT) {
        f->reserve_failed = true;
    } else if (errno == EOPNOTSUPP) { /* then a full disk is only noticed by a failed write */
        f->fallocate_unsupported = true;
    }
}

/* Returns unused reserved space to the disk. */
static void audit_file_release_reserve(const struct audit_file *f)
{
    if (f->fd >= 0 && ftruncate(f->fd, (off_t)f->size) < 0)
        log_debug("cannot release the reserved space of the audit trail: %s", strerror(errno));
}

static int audit_file_open_next(struct audit *a, struct audit_file *f)
{
    char name[SEGMENT_NAME_SIZE];
    int fd = openat(a->dirfd, segment_name(f->no + 1, name),
                    O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return -1;
    audit_file_release_reserve(f);
    fd_close(&f->fd);
    *f = (struct audit_file){ .fd = fd, .no = f->no + 1, .fallocate_unsupported = f->fallocate_unsupported };
    return a->set.sync_full ? fsync(a->dirfd) : 0;
}

static void audit_trim_segments(const struct audit *a, struct audit_batch *b)
{
    struct segment *list = NULL;
    char name[SEGMENT_NAME_SIZE];
    uint64_t total = 0;
    size_t n = 0;

    if (!a->set.keep_max || segment_list(a->dirfd, &list, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n; i++)
        total += list[i].size;
    for (size_t i = 0; i + 2 < n && total > a->set.keep_max; i++) {
        if (unlinkat(a->dirfd, segment_name(list[i].no, name), 0) < 0)
            break;
        total -= list[i].size;
        b->trimmed++;
        b->trimmed_bytes += list[i].size;
    }
    free(list);
}

static void audit_write_batch(void *arg)
{
    struct audit *a = arg;
    struct audit_batch *b = &a->batch;
    uint64_t from = clock_mono_ns();

    b->error = 0;
    if (audit_file_write_batch(b, &a->file) < 0 || (a->set.sync_full && fdatasync(a->file.fd) < 0) ||
        (b->rotate && audit_file_open_next(a, &a->file) < 0))
        b->error = errno ? errno : EIO;
    else if (b->rotate)
        audit_trim_segments(a, b);
    audit_file_reserve(&a->file);
    b->took_ns = clock_mono_ns() - from;
}

/* --- the loop --- */

static void audit_begin_batch(struct audit *a);

static enum audit_state audit_compute_state(const struct audit *a)
{
    const struct audit_file *f = &a->file;

    if (a->batch.error)
        return AUDIT_CLOSED;
    if (!f->reserve_failed)
        return AUDIT_OPEN;
    return f->reserved_end > f->size + AUDIT_RESERVE_LEAST ? AUDIT_FULL : AUDIT_CLOSED;
}

static void audit_set_state(struct audit *a, enum audit_state s)
{
    if (s == a->state)
        return;
    if (s == AUDIT_OPEN)
        log_warn("the audit trail can be written again");
    else if (a->batch.error)
        log_error("cannot write the audit trail, so all changes are refused: %s", strerror(a->batch.error));
    else
        log_error("the disk is full; the audit trail accepts only requests that end or remove objects");
    a->state = s;
}

static void audit_call_waiters(struct audit *a, uint64_t upto)
{
    struct audit_wait *w = a->waiters;

    while (w) {
        if (w->seq > upto) {
            w = w->next;
            continue;
        }
        audit_wait_clear(a, w);
        w->fn(w->arg);
        w = a->waiters; /* the callback may have changed the list */
    }
}

static void audit_on_batch_written(void *arg);

static void audit_retry_batch(void *arg)
{
    struct audit *a = arg;

    if (!a->work.on)
        ev_work(a->pool, &a->work, audit_write_batch, audit_on_batch_written, a);
}

static void audit_record_trimmed(struct audit *a, uint64_t files, uint64_t bytes)
{
    auto_free char *details = str_printf("{\"files\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", files, bytes);

    audit_append(a, &(struct audit_record){ .action = "audit.trim", .outcome = "success", .details = details }, true);
}

static void audit_on_batch_written(void *arg)
{
    struct audit *a = arg;
    struct audit_batch *b = &a->batch;

    a->stats.batches++;
    a->stats.write_ns += b->took_ns;
    audit_set_state(a, audit_compute_state(a));
    if (b->error || a->file.reserve_failed)
        ev_timer_set(a->ev, &a->retry_timer, ev_now(a->ev) + RETRY_NS, audit_retry_batch, a);
    if (b->error) {
        a->stats.errors++;
        return;
    }
    struct audit_batch was = *b;
    a->stats.bytes += was.data.len;
    if (was.last_seq)
        a->written = was.last_seq;
    buf_clear(&b->data);
    *b = (struct audit_batch){ .data = b->data };
    if (was.has_checkpoint && a->set.on_checkpoint)
        a->set.on_checkpoint(a->set.arg, &was.checkpoint);
    if (was.trimmed)
        audit_record_trimmed(a, was.trimmed, was.trimmed_bytes);
    audit_begin_batch(a);
    audit_call_waiters(a, a->written);
}

static void audit_add_checkpoint(struct audit *a, bool last)
{
    chain_sign(&a->head, a->key, last, clock_real_ms(), &a->pending);
    a->stats.records++;
    a->unsigned_records = 0;
    ev_timer_clear(a->ev, &a->sign_timer);
    a->batch.has_checkpoint = true;
    a->batch.checkpoint = a->head;
}

/* Takes all gathered lines. A checkpoint ends its batch, so the batch knows whether it has one. */
static void audit_begin_batch(struct audit *a)
{
    if (a->work.on || a->batch.error || a->pending.len == 0)
        return;
    ev_timer_clear(a->ev, &a->lazy_timer);
    bool rotate = a->set.segment_max && a->file.size + a->pending.len >= a->set.segment_max;
    if (rotate || a->unsigned_records >= a->set.sign_records)
        audit_add_checkpoint(a, rotate);
    struct buf empty = a->batch.data;
    a->batch.data = a->pending;
    a->batch.rotate = rotate;
    a->batch.last_seq = a->head.seq;
    a->pending = empty;
    ev_work(a->pool, &a->work, audit_write_batch, audit_on_batch_written, a);
}

static void audit_on_flush(void *arg)
{
    audit_begin_batch(arg);
}

static void audit_on_sign_timer(void *arg)
{
    struct audit *a = arg;
    uint64_t due = min_u64(a->last_ns + QUIET_NS, a->first_ns + a->set.sign_ns);

    if (ev_now(a->ev) < due) {
        ev_timer_set(a->ev, &a->sign_timer, due, audit_on_sign_timer, a);
        return;
    }
    if (a->work.on || a->batch.error) { /* a batch in progress already has its checkpoint flag */
        ev_timer_set(a->ev, &a->sign_timer, ev_now(a->ev) + RETRY_NS, audit_on_sign_timer, a);
        return;
    }
    if (a->unsigned_records > 0)
        audit_add_checkpoint(a, false);
    audit_begin_batch(a);
}

uint64_t audit_append(struct audit *a, const struct audit_record *r, bool lazy)
{
    chain_append(&a->head, r, clock_real_ms(), &a->pending);
    a->stats.records++;
    a->last_ns = ev_now(a->ev);
    if (a->unsigned_records++ == 0)
        a->first_ns = a->last_ns;
    if (!a->sign_timer.slot)
        ev_timer_set(a->ev, &a->sign_timer, a->last_ns + min_u64(QUIET_NS, a->set.sign_ns), audit_on_sign_timer, a);
    if (!lazy || a->pending.len > AUDIT_RESERVE_LEAST)
        ev_defer(a->ev, &a->flush, audit_on_flush, a);
    else if (!a->lazy_timer.slot && !a->work.on)
        ev_timer_set(a->ev, &a->lazy_timer, ev_now(a->ev) + LAZY_NS, audit_on_flush, a);
    return a->head.seq;
}

bool audit_wait(struct audit *a, struct audit_wait *w, uint64_t seq, void (*fn)(void *arg), void *arg)
{
    if (seq <= a->written)
        return true;
    *w = (struct audit_wait){ .prev = a->last_waiter, .seq = seq, .fn = fn, .arg = arg, .is_waiting = true };
    *(w->prev ? &w->prev->next : &a->waiters) = w;
    a->last_waiter = w;
    if (seq > a->batch.last_seq) /* it may be a lazy record */
        ev_defer(a->ev, &a->flush, audit_on_flush, a);
    return false;
}

void audit_wait_clear(struct audit *a, struct audit_wait *w)
{
    if (!w->is_waiting)
        return;
    *(w->prev ? &w->prev->next : &a->waiters) = w->next;
    *(w->next ? &w->next->prev : &a->last_waiter) = w->prev;
    w->is_waiting = false;
}

enum audit_state audit_state(const struct audit *a, const char **ret_why)
{
    static const char *const why[] = { "", "the disk of the audit trail is full", "the audit trail cannot be written" };

    if (ret_why)
        *ret_why = why[a->state];
    return a->state;
}

void audit_stats(const struct audit *a, struct audit_stats *ret)
{
    *ret = a->stats;
    ret->waiting = a->head.seq - a->written;
    ret->head = a->head;
}

const char *audit_key_pem(const struct audit *a)
{
    return sign_pem(a->key);
}

const char *audit_key_id(const struct audit *a)
{
    return sign_id(a->key);
}

/* --- opening --- */

static int audit_open_dir(struct audit *a, struct err *err)
{
    if (mkdir(a->dir, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_STATE_DIR, "%.150s", a->dir);
    a->dirfd = open(a->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    return a->dirfd < 0 ? err_sys(err, ERR_STATE_DIR, "%.150s", a->dir) : 0;
}

static int audit_open_segment(struct audit *a, uint32_t no, int flags, struct err *err)
{
    char name[SEGMENT_NAME_SIZE];
    int fd = openat(a->dirfd, segment_name(no, name), flags | O_CLOEXEC | O_NOFOLLOW, 0600);

    return fd < 0 ? err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_STATE_DIR, "%.150s/%s", a->dir, name) : fd;
}

/* Opens the newest file and removes its torn end. Returns the end of the trail, which is in an
 * earlier file if the newest has no valid record. */
static int audit_read_log_end(struct audit *a, const struct segment *list, size_t n, struct segment_end *ret,
                              struct err *err)
{
    uint64_t torn = 0;

    for (size_t i = n; i-- > 0;) {
        auto_fd int fd = audit_open_segment(a, list[i].no, i == n - 1 ? O_RDWR | O_APPEND : O_RDONLY, err);

        if (fd < 0 || segment_end(fd, ret, err) < 0)
            return -1;
        if (i == n - 1) {
            torn = ret->torn;
            if (torn && ftruncate(fd, (off_t)ret->size) < 0)
                return err_sys(err, ERR_STATE_DIR, "truncating the torn end of the audit trail");
            a->file = (struct audit_file){ .fd = take_fd(&fd), .no = list[i].no, .size = ret->size };
        }
        ret->torn = torn;
        if (ret->any)
            return 0;
    }
    return 0;
}

static void audit_record_event(struct audit *a, const char *action, const char *outcome, const char *details)
{
    audit_append(a, &(struct audit_record){ .action = action, .outcome = outcome, .details = details }, false);
}

/* Compares the checkpoint saved elsewhere with the files. Numbering continues after the known
 * checkpoint, so that no number is used twice. */
static int audit_compare_known(struct audit *a, const struct segment *list, size_t n, struct audit_open_report *found,
                               struct err *err)
{
    const struct chain_link *k = &a->set.known_checkpoint;

    if (!k->seq)
        return 0;
    if (a->head.seq < k->seq) {
        found->shortened = true;
        a->head = *k;
        return 0;
    }
    for (size_t i = n; i-- > 0;) { /* from the end: the checkpoint is recent */
        auto_fd int fd = audit_open_segment(a, list[i].no, O_RDONLY, err);
        uint64_t first, at_ms;

        if (fd < 0)
            return -1;
        if (!segment_first(fd, list[i].size, &first, &at_ms) || first > k->seq)
            continue;
        return segment_lacks_record(fd, list[i].size, k, &found->replaced, err);
    }
    return 0; /* the file is gone: trimmed, or moved elsewhere */
}

static void audit_record_open_report(struct audit *a, const struct segment_end *end,
                                     const struct audit_open_report *found)
{
    char hex[2 * CHAIN_HASH + 1];

    if (found->new_key) {
        auto_free char *text = str_printf("{\"key\":\"%s\"}", sign_id(a->key));

        audit_record_event(a, "audit.key", "success", text);
    }
    if (found->torn_bytes) {
        chain_hex(end->torn_hash, CHAIN_HASH, hex);
        auto_free char *text = str_printf("{\"bytes\":%" PRIu64 ",\"sha256\":\"%s\"}", found->torn_bytes, hex);

        audit_record_event(a, "audit.torn", "failed", text);
    }
    if (found->shortened || found->replaced) {
        auto_free char *text = str_printf("{\"what\":\"%s\",\"lastSeq\":%" PRIu64 ",\"knownSeq\":%" PRIu64 "}",
                                          found->shortened ? "shortened" : "replaced", end->line.seq,
                                          a->set.known_checkpoint.seq);

        audit_record_event(a, "security.audit_damaged", "failed", text);
    }
}

static int audit_start(struct audit *a, struct audit_open_report *found, struct err *err)
{
    auto_free struct segment *list = NULL;
    struct segment_end end = { 0 };
    size_t n = 0;

    if (audit_open_dir(a, err) < 0 || sign_open(a->dirfd, &a->key, &found->new_key, err) < 0 ||
        segment_list(a->dirfd, &list, &n, err) < 0 || audit_read_log_end(a, list, n, &end, err) < 0)
        return -1;
    a->head.seq = end.line.seq;
    memcpy(a->head.hash, end.line.hash, CHAIN_HASH);
    found->is_new = !end.any;
    found->torn_bytes = end.torn;
    if (audit_compare_known(a, list, n, found, err) < 0)
        return -1;
    if (n == 0 || (end.line.checkpoint && end.line.last && a->file.size > 0)) /* killed between two files */
        if (audit_file_open_next(a, &a->file) < 0)
            return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_STATE_DIR, "%.150s", a->dir);
    audit_file_reserve(&a->file);
    a->state = audit_compute_state(a);
    a->written = a->head.seq;
    audit_record_open_report(a, &end, found);
    return 0;
}

int audit_open(struct ev *ev, const struct audit_settings *set, struct audit **ret, struct audit_open_report *found,
               struct err *err)
{
    auto_(audit) a = mem_new(struct audit);

    *found = (struct audit_open_report){ 0 };
    a->ev = ev;
    a->set = *set;
    a->set.sign_records = set->sign_records ? set->sign_records : SIGN_RECORDS;
    a->set.sign_ns = set->sign_ns ? set->sign_ns : SIGN_NS;
    a->dir = str_dup(set->dir);
    a->dirfd = a->file.fd = -1;
    if (audit_start(a, found, err) < 0 || work_pool_new(ev, "audit", 1, &a->pool, err) < 0)
        return -1;
    *ret = take_ptr(&a);
    return 0;
}

static void audit_write_rest(struct audit *a)
{
    a->batch.error = 0; /* one more attempt */
    if (a->unsigned_records > 0 && !a->work.on && a->batch.data.len == 0)
        audit_add_checkpoint(a, false);
    audit_begin_batch(a);
    audit_retry_batch(a);
    work_pool_drain(a->pool);
}

void audit_close(struct audit *a)
{
    if (!a)
        return;
    if (a->pool) {
        work_pool_drain(a->pool);
        audit_write_rest(a);
        if (a->head.seq > a->written)
            log_error("%" PRIu64 " records of the audit trail could not be written", a->head.seq - a->written);
    }
    audit_readings_free(a);
    ev_defer_clear(a->ev, &a->flush);
    ev_timer_clear(a->ev, &a->lazy_timer);
    ev_timer_clear(a->ev, &a->sign_timer);
    ev_timer_clear(a->ev, &a->retry_timer);
    work_pool_free(a->pool);
    audit_call_waiters(a, UINT64_MAX);
    audit_file_release_reserve(&a->file);
    fd_close(&a->file.fd);
    if (a->dirfd >= 0)
        close(a->dirfd);
    sign_free(a->key);
    buf_done(&a->pending);
    buf_done(&a->batch.data);
    free(a->dir);
    free(a);
}
