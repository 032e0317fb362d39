/* Verifies the chain line by line. Each line must be an audit record, match its own hash, have the
 * next number and contain the hash of the previous line; a checkpoint must have a valid signature.
 * The first failed check shows what was done to the trail:
 *
 *     its own hash                 the record was edited
 *     its number                   records are missing, or it was moved
 *     the hash of the previous     the previous record was edited and its hash recomputed
 *     the signature                the whole trail was rewritten without the key
 *
 * Only the last file may end anywhere; all others end with a checkpoint marked `last`. Records
 * removed from the end of the last file cannot be detected from the file alone, only with a record
 * known from elsewhere (verify_finish). */
#include "server/audit/verify.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define PIECE (256 * KIB)

struct verify {
    const struct sign_key *const *keys;
    size_t nkeys;
    struct verify_report report;
    bool file_closed; /* the previous file ended with its closing checkpoint */
    struct chain_link expect;
    uint64_t line, last_line; /* last_line: number of lines of the previous file */
};

const char *verify_fault_name(enum verify_fault f)
{
    static const char *const names[] = { "fine",      "unreadable", "edited",   "missing",
                                         "reordered", "signature",  "truncated" };

    return names[f];
}

struct verify *verify_new(const struct sign_key *const *keys, size_t nkeys, const struct chain_link *expect)
{
    struct verify *v = mem_new(struct verify);

    v->keys = keys;
    v->nkeys = nkeys;
    if (expect)
        v->expect = *expect;
    return v;
}

void verify_free(struct verify *v)
{
    free(v);
}

const struct verify_report *verify_report(const struct verify *v)
{
    return &v->report;
}

PRINTF_LIKE(4, 5)
static bool verify_fail(struct verify *v, enum verify_fault fault, uint64_t seq, const char *fmt, ...)
{
    va_list args;

    v->report.fault = fault;
    v->report.line = v->line;
    v->report.seq = seq;
    va_start(args, fmt);
    vsnprintf(v->report.why, sizeof(v->report.why), fmt, args);
    va_end(args);
    return false;
}

static bool verify_check_signature(struct verify *v, const struct chain_line *l)
{
    const struct sign_key *known = NULL;

    v->report.checkpoints++;
    if (v->nkeys == 0)
        return true;
    for (size_t i = 0; i < v->nkeys && !known; i++)
        known = str_eq(sign_id(v->keys[i]), l->key) ? v->keys[i] : NULL;
    if (!known)
        return verify_fail(v, VERIFY_SIGNATURE, l->seq, "it is signed by an unknown key, %s", l->key);
    if (!sign_check(known, l->seq, l->prev, l->signature))
        return verify_fail(v, VERIFY_SIGNATURE, l->seq, "the signature is not valid for key %s", l->key);
    v->report.signed_to = l->seq;
    return true;
}

static bool verify_check_order(struct verify *v, const struct chain_line *l)
{
    const struct chain_link *before = &v->report.head;

    if (v->report.records == 0)
        return true; /* older files may have been removed */
    if (l->seq > before->seq + 1)
        return verify_fail(v, VERIFY_MISSING, l->seq, "records %" PRIu64 " to %" PRIu64 " before it are missing",
                           before->seq + 1, l->seq - 1);
    if (l->seq <= before->seq)
        return verify_fail(v, VERIFY_REORDERED, l->seq, "it comes after record %" PRIu64, before->seq);
    if (memcmp(l->prev, before->hash, CHAIN_HASH) != 0)
        return verify_fail(v, VERIFY_EDITED, l->seq,
                           "its prev does not match record %" PRIu64
                           ": that record, or all records before it, were rewritten",
                           before->seq);
    return true;
}

static bool verify_check_line(struct verify *v, const char *line, size_t len)
{
    struct chain_line l;
    struct err err = { 0 };

    v->line++;
    if (chain_parse_line(line, len, &l, &err) < 0)
        return verify_fail(v, VERIFY_UNREADABLE, l.seq, "%s", err.msg);
    if (!chain_hash_matches(line, len, &l))
        return verify_fail(v, VERIFY_EDITED, l.seq, "its text does not match its hash");
    if (l.seq == v->expect.seq && memcmp(l.hash, v->expect.hash, CHAIN_HASH) != 0)
        return verify_fail(v, VERIFY_EDITED, l.seq, "it differs from the known record with this number");
    if (!verify_check_order(v, &l) || (l.checkpoint && !verify_check_signature(v, &l)))
        return false;
    if (v->report.records++ == 0)
        v->report.first = l.seq;
    v->file_closed = l.checkpoint && l.last;
    v->report.last = v->report.head.seq = l.seq;
    memcpy(v->report.head.hash, l.hash, CHAIN_HASH);
    return true;
}

static bool verify_begin_file(struct verify *v, const char *name)
{
    bool first = v->report.files++ == 0;

    if (!first && !v->file_closed && v->report.records > 0) {
        v->line = v->last_line; /* report.file still names the previous file */
        return verify_fail(v, VERIFY_TRUNCATED, v->report.last,
                           "the file ends without the checkpoint that closes it, and another file follows");
    }
    snprintf(v->report.file, sizeof(v->report.file), "%s", name);
    v->line = 0;
    return true;
}

/* Checks all complete lines in `text` and removes them. */
static bool verify_check_lines(struct verify *v, struct buf *text)
{
    size_t done = 0;
    const char *stop;

    while ((stop = memchr(text->data + done, '\n', text->len - done))) {
        if (!verify_check_line(v, text->data + done, (size_t)(stop - text->data) - done))
            return false;
        done = (size_t)(stop - text->data) + 1;
    }
    buf_drop(text, done);
    if (text->len <= CHAIN_LINE_MAX)
        return true;
    v->line++;
    return verify_fail(v, VERIFY_UNREADABLE, 0, "not an audit record");
}

int verify_file(struct verify *v, const char *name, int fd, struct err *err)
{
    auto_free char *piece = mem_alloc(PIECE);
    auto_buf text = { 0 };
    ssize_t n;

    if (v->report.fault || !verify_begin_file(v, name))
        return 0;
    while ((n = read(fd, piece, PIECE)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, ERR_SYS, "%.150s", name);
        buf_add(&text, piece, (size_t)n);
        if (!verify_check_lines(v, &text))
            return 0;
    }
    v->last_line = v->line;
    if (text.len > 0) {
        v->line++;
        verify_fail(v, VERIFY_TRUNCATED, v->report.last + 1, "the file ends in the middle of this line");
    }
    return 0;
}

void verify_finish(struct verify *v)
{
    v->line = v->last_line;
    if (!v->report.fault && v->report.last < v->expect.seq)
        verify_fail(v, VERIFY_TRUNCATED, v->report.last, "the trail ends here, but record %" PRIu64 " was written",
                    v->expect.seq);
}
