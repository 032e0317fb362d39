/* Pages of the audit trail, read by a thread of their own from the files that the writer writes.
 *
 * There is no index: the files are few and begin with their number, and their records are in order.
 * A position is found by binary search, and records that the tenant may not see are skipped. One
 * page scans at most AUDIT_SCAN_MAX bytes and then returns its records and where it stopped. A
 * tenant with few records among many needs more requests, but never delays others. */
#include "server/audit/audit_internal.h"

#include "core/base/fd.h"
#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <fcntl.h>

#define AUDIT_SCAN_MAX (8 * MIB)
#define PAGE_BYTES (4 * MIB)
#define DEFAULT_LIMIT 100u
#define DAY_MS (24ull * 3600 * 1000) /* corrections of the wall clock are smaller than this */

struct audit_reading {
    struct audit_reading *next;
    struct audit *a;
    struct work_item work;
    struct audit_query q;
    char *tenant, *action;
    int dirfd;
    audit_page_fn *done;
    void *arg;
    /* owned by the reader thread: */
    struct audit_page page;
    uint64_t scanned_bytes, upto;
    bool full;
    int error;
};

/* --- the reader thread --- */

static bool audit_text_equals(const struct chain_text *t, const char *s)
{
    return t->n == strlen(s) && memcmp(t->p, s, t->n) == 0;
}

static bool audit_action_matches(const struct chain_text *t, const char *wanted)
{
    size_t n = strlen(wanted);

    return n > 0 && wanted[n - 1] == '.' ? t->n > n && memcmp(t->p, wanted, n) == 0 : audit_text_equals(t, wanted);
}

static bool audit_reading_matches(const struct audit_reading *r, const struct chain_line *l)
{
    return (!r->tenant || audit_text_equals(&l->tenant, r->tenant)) &&
           (!r->action || audit_action_matches(&l->action, r->action)) &&
           (!r->q.since_ms || l->at_ms >= r->q.since_ms) && (!r->q.until_ms || l->at_ms < r->q.until_ms);
}

static bool audit_reading_take_line(void *arg, const char *line, size_t len, uint64_t next UNUSED)
{
    struct audit_reading *r = arg;
    struct chain_line l;

    if (r->page.n >= r->q.limit || r->page.lines.len >= PAGE_BYTES || r->scanned_bytes >= AUDIT_SCAN_MAX) {
        r->page.more = true;
        return false;
    }
    r->scanned_bytes += len + 1;
    if (!chain_peek(line, len, &l) || l.seq <= r->q.after)
        return true;
    r->page.last = l.seq;
    if (!audit_reading_matches(r, &l))
        return true;
    buf_add(&r->page.lines, line, len);
    buf_add(&r->page.lines, "\n", 1);
    r->page.n++;
    return true;
}

/* Keeps the last `limit` records of one file; they precede the records of later files. */
static bool audit_reading_take_latest(void *arg, const char *line, size_t len, uint64_t next UNUSED)
{
    struct audit_reading *r = arg;
    struct chain_line l;

    r->scanned_bytes += len + 1;
    if (!chain_peek(line, len, &l))
        return true;
    r->page.last = max_u64(r->page.last, l.seq);
    if (!audit_reading_matches(r, &l))
        return true;
    buf_add(&r->page.lines, line, len);
    buf_add(&r->page.lines, "\n", 1);
    if (++r->page.n > r->q.limit || r->page.lines.len > PAGE_BYTES) {
        const char *end = memchr(r->page.lines.data, '\n', r->page.lines.len);

        buf_drop(&r->page.lines, (size_t)(end + 1 - r->page.lines.data));
        r->page.n--;
    }
    return true;
}

static int audit_reading_open_segment(const struct audit_reading *r, const struct segment *s)
{
    char name[SEGMENT_NAME_SIZE];

    return openat(r->dirfd, segment_name(s->no, name), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
}

static int audit_reading_scan_latest(struct audit_reading *r, const struct segment *list, size_t n)
{
    for (size_t i = n; i-- > 0 && r->page.n < r->q.limit && r->scanned_bytes < AUDIT_SCAN_MAX;) {
        auto_fd int fd = audit_reading_open_segment(r, &list[i]);
        struct audit_page behind = r->page;

        if (fd < 0)
            return errno == ENOENT ? 0 : -1; /* trimmed in the meantime */
        r->page.lines = (struct buf){ 0 };
        r->page.n = 0;
        r->q.limit -= (uint32_t)behind.n;
        int bad = segment_each(fd, 0, list[i].size, audit_reading_take_latest, r);
        r->q.limit += (uint32_t)behind.n;
        buf_add(&r->page.lines, behind.lines.data, behind.lines.len);
        r->page.n += behind.n;
        buf_done(&behind.lines);
        if (bad < 0)
            return -1;
    }
    return 0;
}

/* The file with the next record: the last file that begins before it. With a start time, files that
 * end long before it are skipped. */
static size_t audit_reading_first_segment(const struct audit_reading *r, const struct segment *list, size_t n)
{
    size_t low = 0;

    for (size_t i = 1; i < n; i++) {
        auto_fd int fd = audit_reading_open_segment(r, &list[i]);
        uint64_t seq, at_ms;

        if (fd < 0 || !segment_first(fd, list[i].size, &seq, &at_ms))
            break;
        if (seq > r->q.after + 1 && (!r->q.since_ms || at_ms + DAY_MS > r->q.since_ms))
            break;
        low = i;
    }
    return low;
}

static int audit_reading_scan_forward(struct audit_reading *r, const struct segment *list, size_t n)
{
    for (size_t i = n ? audit_reading_first_segment(r, list, n) : 0; i < n && !r->page.more; i++) {
        auto_fd int fd = audit_reading_open_segment(r, &list[i]);

        if (fd < 0 && errno == ENOENT)
            continue;
        if (fd < 0 ||
            segment_each(fd, segment_find(fd, list[i].size, r->q.after), list[i].size, audit_reading_take_line, r) < 0)
            return -1;
    }
    return 0;
}

static void audit_reading_run(void *arg)
{
    struct audit_reading *r = arg;
    auto_free struct segment *list = NULL;
    size_t n = 0;

    r->page.last = r->q.after;
    if (segment_list(r->dirfd, &list, &n, NULL) < 0 ||
        (r->q.latest ? audit_reading_scan_latest(r, list, n) : audit_reading_scan_forward(r, list, n)) < 0)
        r->error = errno ? errno : EIO;
}

/* --- the loop --- */

static void audit_reading_free(struct audit_reading *r)
{
    buf_done(&r->page.lines);
    free(r->tenant);
    free(r->action);
    free(r);
}

static void audit_reading_remove(struct audit_reading *r)
{
    list_remove(&r->a->readings, r);
    audit_reading_free(r);
}

static void audit_reading_on_done(void *arg)
{
    struct audit_reading *r = arg;
    struct err err = { 0 };

    errno = r->error;
    if (r->error)
        err_sys(&err, ERR_SYS, "reading the audit trail");
    r->done(r->arg, r->error ? &err : NULL, &r->page);
    audit_reading_remove(r);
}

void audit_read(struct audit *a, const struct audit_query *q, audit_page_fn *done, void *arg)
{
    struct audit_reading *r = mem_new(struct audit_reading);
    struct err err = { 0 };

    *r = (struct audit_reading){ .next = a->readings, .a = a, .q = *q, .dirfd = a->dirfd, .done = done, .arg = arg };
    r->tenant = q->tenant ? str_dup(q->tenant) : NULL;
    r->action = q->action ? str_dup(q->action) : NULL;
    r->q.limit = q->limit ? (uint32_t)min_u64(q->limit, AUDIT_PAGE_MAX) : DEFAULT_LIMIT;
    a->readings = r;
    if (!a->readers && work_pool_new(a->ev, "audit-read", 1, &a->readers, &err) < 0) {
        done(arg, &err, &r->page);
        audit_reading_remove(r);
        return;
    }
    ev_work(a->readers, &r->work, audit_reading_run, audit_reading_on_done, r);
}

void audit_readings_free(struct audit *a)
{
    work_pool_free(a->readers);
    for (struct audit_reading *r = a->readings, *next; r; r = next) {
        next = r->next;
        audit_reading_free(r);
    }
    a->readings = NULL;
}
