/* The journal of ends that were acknowledged before the store committed them: a plain file with one
 * line per end, which is a JSON object, a tab and the receipt.
 *
 * A commit changes a dozen pages of the database in another thread; a line in a file is one write
 * and survives a kill as well. So a client that waits for an execution is answered after the line
 * is written, and the commit follows. A new manager replays the journal before it reads anything
 * else: each line first as an update of a live row, then as a new row; the one that does not apply
 * changes nothing.
 *
 * 1. A line is written before the end is acknowledged and stays until its commit. When nothing is
 *    uncommitted, the file is truncated after a delay.
 * 2. A line without a newline was never acknowledged.
 * 3. If acknowledged data must survive more than a kill (store.sync: full), the journal is not used
 *    and answers wait for the store. */
#include "service/end_journal.h"

#include "core/base/buf.h"
#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/jsonw.h"
#include "core/base/list.h"
#include "core/base/log.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/doc/json_input.h"
#include "sandbox/hint.h"
#include "service/result.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#define END_JOURNAL_FILE "ends"
#define END_JOURNAL_BYTES_MAX (64 * MIB) /* above this size answers wait for the store until it has caught up */
#define END_JOURNAL_TRUNCATE_DELAY_NS (1 * NS_PER_S)
#define END_JOURNAL_REPLAY_WAITING 500u /* calls to the store that the replay leaves unanswered */

struct end_journal {
    struct ev *ev;
    struct store *store;
    int fd; /* -1: the journal is not used */
    uint64_t size;
    size_t uncommitted; /* entries that are not committed yet */
    struct end_journal_entry *replay_entries;
    struct ev_timer timer;
};

/* --- writing --- */

static void end_journal_truncate(void *arg)
{
    struct end_journal *j = arg;

    if (j->uncommitted == 0 && j->fd >= 0 && ftruncate(j->fd, 0) == 0)
        j->size = 0;
}

static void end_journal_write_row_json(const struct store_execution *row, struct buf *out)
{
    struct jsonw w;

    jsonw_init(&w, out, 0);
    jsonw_object(&w);
    jsonw_kstr(&w, "id", row->id);
    jsonw_kstr(&w, "sandbox", row->sandbox);
    jsonw_kstr(&w, "owner", row->owner);
    jsonw_kbool(&w, "failed", row->state == STORE_EXECUTION_FAILED);
    jsonw_kbool(&w, "background", row->background);
    if (row->tty)
        jsonw_kbool(&w, "tty", true);
    jsonw_kstr_if(&w, "context", row->context);
    jsonw_ku64(&w, "createdMs", row->created_ms);
    jsonw_ku64(&w, "startedMs", row->started_ms);
    jsonw_ku64(&w, "endedMs", row->ended_ms);
    jsonw_ku64(&w, "out1", row->out_bytes[0]);
    jsonw_ku64(&w, "out2", row->out_bytes[1]);
    jsonw_ku64(&w, "dropped1", row->dropped[0]);
    jsonw_ku64(&w, "dropped2", row->dropped[1]);
    jsonw_ku64(&w, "out3", row->out_bytes[2]);
    jsonw_ku64(&w, "dropped3", row->dropped[2]);
    if (row->has_exit_code)
        jsonw_ku64(&w, "exitCode", (uint64_t)row->exit_code);
    jsonw_ku64(&w, "signal", (uint64_t)row->signal);
    if (row->ended_by)
        jsonw_kstr(&w, "endedBy", row->ended_by);
    if (row->error_json)
        jsonw_kstr(&w, "error", row->error_json);
    if (row->created_by)
        jsonw_kstr(&w, "createdBy", row->created_by);
    if (row->hint)
        jsonw_kstr(&w, "hint", row->hint);
    if (row->context_reset)
        jsonw_kbool(&w, "contextReset", true);
    jsonw_ku64(&w, "cpuUs", row->usage_cpu_us);
    jsonw_end_object(&w);
    buf_adds(out, "\t");
}

bool end_journal_append(struct end_journal *j, const struct store_execution *row)
{
    auto_buf head = { 0 };
    char *receipt = row->receipt_json ? row->receipt_json : (char *)"";

    if (j->fd < 0 || j->size > END_JOURNAL_BYTES_MAX)
        return false;
    end_journal_write_row_json(row, &head);
    struct iovec line[] = { { head.data, head.len }, { receipt, strlen(receipt) }, { (char *)"\n", 1 } };
    size_t len = head.len + line[1].iov_len + 1;
    if (len > JSON_INPUT_SIZE_MAX)
        return false;
    if (writev(j->fd, line, 3) != (ssize_t)len) {
        /* A partial line would corrupt the next one. */
        if (ftruncate(j->fd, (off_t)j->size) < 0)
            fd_close(&j->fd);
        return false;
    }
    j->size += len;
    j->uncommitted++;
    return true;
}

void end_journal_committed(struct end_journal *j)
{
    if (--j->uncommitted > 0)
        return;
    if (j->size > END_JOURNAL_BYTES_MAX)
        end_journal_truncate(j);
    else
        ev_timer_set(j->ev, &j->timer, ev_now(j->ev) + END_JOURNAL_TRUNCATE_DELAY_NS, end_journal_truncate, j);
}

/* --- replay after a kill --- */

struct end_journal_entry {
    struct end_journal_entry *next;
    struct store_request *request;
    struct end_journal *journal;
    char id[ID_SIZE], sandbox[ID_SIZE];
    char owner[STORE_OWNER_MAX + 1];
};

static void end_journal_entry_free(struct end_journal_entry *r)
{
    list_remove(&r->journal->replay_entries, r);
    free(r);
}

static void end_journal_append_event(const struct end_journal_entry *r, const char *kind)
{
    auto_free char *body = str_printf("{\"executionId\":\"%s\"}", r->id);
    struct store_event row = { .at_ms = clock_real_ms(), .kind = (char *)kind, .body_json = body };

    memcpy(row.owner, r->owner, sizeof(row.owner));
    memcpy(row.sandbox, r->sandbox, sizeof(row.sandbox));
    store_event_append(r->journal->store, &row, NULL, NULL);
}

/* Both store calls end here. The call that changed something also appends the missing events. */
static void end_journal_on_applied(struct end_journal_entry *r, bool inserted, const struct err *err)
{
    struct end_journal *j = r->journal;

    if (err && err->id != ERR_MISSING && err->id != ERR_EXISTS) {
        log_error("cannot store the journaled end of %s; the journal is kept: %s", r->id, err->msg);
        j->uncommitted++; /* never decremented: the journal stays for the next start */
    }
    if (!err && inserted)
        end_journal_append_event(r, "execution_started");
    if (!err)
        end_journal_append_event(r, "execution_ended");
    end_journal_entry_free(r);
    end_journal_committed(j);
}

static void end_journal_on_updated(void *arg, const struct err *err, const struct store_execution *row UNUSED)
{
    end_journal_on_applied(arg, false, err);
}

static void end_journal_on_inserted(void *arg, const struct err *err)
{
    end_journal_on_applied(arg, true, err);
}

static struct end_journal_entry *end_journal_entry_new(struct end_journal *j, const struct store_execution *row)
{
    struct end_journal_entry *r = mem_new(struct end_journal_entry);

    r->journal = j;
    memcpy(r->id, row->id, sizeof(r->id));
    memcpy(r->sandbox, row->sandbox, sizeof(r->sandbox));
    memcpy(r->owner, row->owner, sizeof(r->owner));
    r->next = j->replay_entries;
    j->replay_entries = r;
    j->uncommitted++;
    return r;
}

static int end_journal_read_row(const json_t *o, struct store_execution *row, struct err *err)
{
    const char *id = "", *sandbox = "", *owner = "", *context = "";
    const char *ended_by = NULL, *error = NULL, *by = NULL, *hint = NULL;
    uint64_t code = 0, signo = 0;
    bool failed = false;

    if (json_input_text(o, "", "id", 1, ID_LEN, &id, err) < 0 ||
        json_input_text(o, "", "sandbox", 1, ID_LEN, &sandbox, err) < 0 ||
        json_input_text(o, "", "owner", 1, STORE_OWNER_MAX, &owner, err) < 0 ||
        json_input_bool(o, "", "failed", &failed, err) < 0 ||
        json_input_bool(o, "", "background", &row->background, err) < 0 ||
        json_input_bool(o, "", "tty", &row->tty, err) < 0 ||
        json_input_text(o, "", "context", 1, ID_LEN, &context, err) < 0 ||
        json_input_u64(o, "", "createdMs", 1, INT64_MAX, &row->created_ms, NULL, err) < 0 ||
        json_input_u64(o, "", "startedMs", 0, INT64_MAX, &row->started_ms, NULL, err) < 0 ||
        json_input_u64(o, "", "endedMs", 1, INT64_MAX, &row->ended_ms, NULL, err) < 0 ||
        json_input_u64(o, "", "out1", 0, INT64_MAX, &row->out_bytes[0], NULL, err) < 0 ||
        json_input_u64(o, "", "out2", 0, INT64_MAX, &row->out_bytes[1], NULL, err) < 0 ||
        json_input_u64(o, "", "dropped1", 0, INT64_MAX, &row->dropped[0], NULL, err) < 0 ||
        json_input_u64(o, "", "dropped2", 0, INT64_MAX, &row->dropped[1], NULL, err) < 0 ||
        json_input_u64(o, "", "out3", 0, INT64_MAX, &row->out_bytes[2], NULL, err) < 0 ||
        json_input_u64(o, "", "dropped3", 0, INT64_MAX, &row->dropped[2], NULL, err) < 0 ||
        json_input_u64(o, "", "exitCode", 0, 255, &code, &row->has_exit_code, err) < 0 ||
        json_input_u64(o, "", "signal", 0, 64, &signo, NULL, err) < 0 ||
        json_input_text(o, "", "createdBy", 1, ID_LEN, &by, err) < 0 ||
        json_input_u64(o, "", "cpuUs", 0, INT64_MAX, &row->usage_cpu_us, NULL, err) < 0 ||
        json_input_text(o, "", "endedBy", 1, 32, &ended_by, err) < 0 ||
        json_input_text(o, "", "hint", 1, HINT_MAX, &hint, err) < 0 ||
        json_input_bool(o, "", "contextReset", &row->context_reset, err) < 0 ||
        json_input_text(o, "", "error", 2, JSON_INPUT_SIZE_MAX, &error, err) < 0)
        return -1;
    if (!id_valid(id, "ex") || !id_valid(sandbox, "sb"))
        return err_set(err, ERR_STORE_CORRUPT, "invalid id of an execution or a sandbox");
    str_copy(row->id, sizeof(row->id), id);
    str_copy(row->sandbox, sizeof(row->sandbox), sandbox);
    str_copy(row->owner, sizeof(row->owner), owner);
    str_copy(row->context, sizeof(row->context), context);
    row->state = failed ? STORE_EXECUTION_FAILED : STORE_EXECUTION_ENDED;
    row->exit_code = (int32_t)code;
    row->signal = (int32_t)signo;
    row->ended_by = (char *)ended_by;
    row->error_json = (char *)error;
    row->created_by = (char *)by;
    row->hint = (char *)hint;
    result_set_row_outcome(row);
    return 0;
}

static void end_journal_replay_line(struct end_journal *j, const char *line, size_t len)
{
    struct store_execution row = { 0 };
    auto_json *root = NULL;
    struct err err = { 0 };

    const char *tab = memchr(line, '\t', len);
    size_t head = tab ? (size_t)(tab - line) : len;
    auto_free char *receipt = tab ? str_dup_n(tab + 1, len - head - 1) : NULL;
    auto_json *checked = NULL;

    if (json_input_parse(line, head, &root, &err) < 0 || end_journal_read_row(root, &row, &err) < 0 ||
        (receipt && *receipt && json_input_parse(receipt, len - head - 1, &checked, &err) < 0)) {
        log_error("cannot read an entry of the journal of ends: %s", err.msg);
        return;
    }
    if (receipt && *receipt)
        row.receipt_json = receipt;
    struct end_journal_entry *update = end_journal_entry_new(j, &row), *insert = end_journal_entry_new(j, &row);
    update->request = store_execution_update(j->store, row.owner, &row, EXECUTION_SET_ALL,
                                             &(struct store_condition){ .states = STORE_EXECUTION_LIVE },
                                             end_journal_on_updated, update);
    insert->request = store_execution_insert(j->store, &row, end_journal_on_inserted, insert);
}

/* Lets the store catch up: it refuses calls when too many wait. */
static void end_journal_wait_for_store(struct end_journal *j)
{
    struct store_stats stats;

    for (store_stats(j->store, &stats); stats.waiting > END_JOURNAL_REPLAY_WAITING; store_stats(j->store, &stats))
        ev_turn(j->ev, 1000);
}

static void end_journal_replay(struct end_journal *j)
{
    struct stat st;

    if (j->fd < 0 || fstat(j->fd, &st) < 0 || st.st_size == 0)
        return;
    size_t size = (size_t)st.st_size;
    auto_free char *text = mem_alloc(size + 1);
    char *at = text, *end = text + size;

    if (pread(j->fd, text, size, 0) != st.st_size) {
        log_error("cannot read the journal of ends; it is kept, and answers wait for the store: %s", strerror(errno));
        fd_close(&j->fd);
        return;
    }
    j->uncommitted++; /* the file stays until every line was read */
    for (char *stop; at < end && (stop = memchr(at, '\n', (size_t)(end - at))); at = stop + 1) {
        end_journal_wait_for_store(j);
        end_journal_replay_line(j, at, (size_t)(stop - at));
    }
    /* The rest is a partial line, which would corrupt the next one. */
    j->size = (uint64_t)(at - text);
    if (ftruncate(j->fd, (off_t)j->size) < 0)
        fd_close(&j->fd);
    if (--j->uncommitted == 0)
        end_journal_truncate(j);
}

struct end_journal *end_journal_new(struct ev *ev, struct store *store, int dir_fd)
{
    struct end_journal *j = mem_new(struct end_journal);

    *j = (struct end_journal){ .ev = ev, .store = store, .fd = -1 };
    if (dir_fd < 0)
        return j;
    j->fd = openat(dir_fd, END_JOURNAL_FILE, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (j->fd < 0)
        log_warn("cannot open the journal of ends; answers wait for the store: %s", strerror(errno));
    end_journal_replay(j);
    return j;
}

void end_journal_free(struct end_journal *j)
{
    if (!j)
        return;
    while (j->replay_entries) {
        store_request_detach(j->replay_entries->request);
        end_journal_entry_free(j->replay_entries);
    }
    ev_timer_clear(j->ev, &j->timer);
    fd_close(&j->fd);
    free(j);
}
