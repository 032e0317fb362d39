/* A walk along the chain. Each line must be one of ours, hold its own hash, have the next number and name the hash of
 * the line before it; a checkpoint must be signed. Which of these fails first says what was done to the log:
 *
 *     its own hash                 it was edited
 *     its number                   records are missing, or it was moved
 *     the hash of the one before   that one was edited, and its hash made anew
 *     the signature                all of it was made anew by somebody without the key
 *
 * Only the last file may end anywhere; the others end with a checkpoint that says so. What was cut off from the end of
 * the last one cannot be seen from the file, only with something known from elsewhere (verify_end). */
#include "audit/verify.h"

#include "base/fd.h"
#include "base/mem.h"
#include "base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

#define PIECE (256 * KIB)

struct verify {
    const struct sign_key *const *keys;
    size_t nkeys;
    struct verify_report r;
    bool ended; /* the file before closed itself */
    struct chain_link expect;
    uint64_t line, last_line; /* last_line: of the file before */
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
    return &v->r;
}

PRINTF_LIKE(4, 5)
static bool broken(struct verify *v, enum verify_fault fault, uint64_t seq, const char *fmt, ...)
{
    va_list args;

    v->r.fault = fault;
    v->r.line = v->line;
    v->r.seq = seq;
    va_start(args, fmt);
    vsnprintf(v->r.why, sizeof(v->r.why), fmt, args);
    va_end(args);
    return false;
}

static bool check_signature(struct verify *v, const struct chain_line *l)
{
    const struct sign_key *known = NULL;

    v->r.checkpoints++;
    if (v->nkeys == 0)
        return true;
    for (size_t i = 0; i < v->nkeys && !known; i++)
        known = str_eq(sign_id(v->keys[i]), l->key) ? v->keys[i] : NULL;
    if (!known)
        return broken(v, VERIFY_SIGNATURE, l->seq, "it is signed by another key, %s", l->key);
    if (!sign_check(known, l->seq, l->prev, l->signature))
        return broken(v, VERIFY_SIGNATURE, l->seq, "the signature is not that of key %s", l->key);
    v->r.signed_to = l->seq;
    return true;
}

static bool check_place(struct verify *v, const struct chain_line *l)
{
    const struct chain_link *before = &v->r.head;

    if (v->r.records == 0)
        return true; /* older files may be elsewhere */
    if (l->seq > before->seq + 1)
        return broken(v, VERIFY_MISSING, l->seq, "records %" PRIu64 " to %" PRIu64 " before it are not there",
                      before->seq + 1, l->seq - 1);
    if (l->seq <= before->seq)
        return broken(v, VERIFY_REORDERED, l->seq, "it comes after record %" PRIu64, before->seq);
    if (memcmp(l->prev, before->hash, CHAIN_HASH) != 0)
        return broken(v, VERIFY_EDITED, l->seq,
                      "it does not follow from record %" PRIu64 ": that one, or all before it, was written anew",
                      before->seq);
    return true;
}

static bool check_line(struct verify *v, const char *line, size_t len)
{
    struct chain_line l;
    struct err err = { 0 };

    v->line++;
    if (chain_read(line, len, &l, &err) < 0)
        return broken(v, VERIFY_UNREADABLE, l.seq, "%s", err.msg);
    if (!chain_holds(line, len, &l))
        return broken(v, VERIFY_EDITED, l.seq, "its text is not the one that its hash was made of");
    if (l.seq == v->expect.seq && memcmp(l.hash, v->expect.hash, CHAIN_HASH) != 0)
        return broken(v, VERIFY_EDITED, l.seq, "it is not the record of this number that is known from elsewhere");
    if (!check_place(v, &l) || (l.checkpoint && !check_signature(v, &l)))
        return false;
    if (v->r.records++ == 0)
        v->r.first = l.seq;
    v->ended = l.checkpoint && l.last;
    v->r.last = v->r.head.seq = l.seq;
    memcpy(v->r.head.hash, l.hash, CHAIN_HASH);
    return true;
}

static bool begin_file(struct verify *v, const char *name)
{
    bool first = v->r.files++ == 0;

    if (!first && !v->ended && v->r.records > 0) {
        v->line = v->last_line; /* r.file still names the one before */
        return broken(v, VERIFY_TRUNCATED, v->r.last,
                      "the file ends without the checkpoint that closes it, and another file follows");
    }
    snprintf(v->r.file, sizeof(v->r.file), "%s", name);
    v->line = 0;
    return true;
}

/* Whole lines of what has been read; what is left moves to the front. */
static bool check_lines(struct verify *v, struct buf *text)
{
    size_t done = 0;
    const char *stop;

    while ((stop = memchr(text->data + done, '\n', text->len - done))) {
        if (!check_line(v, text->data + done, (size_t)(stop - text->data) - done))
            return false;
        done = (size_t)(stop - text->data) + 1;
    }
    buf_drop(text, done);
    if (text->len <= CHAIN_LINE_MAX)
        return true;
    v->line++;
    return broken(v, VERIFY_UNREADABLE, 0, "it is no record of an audit log");
}

int verify_file(struct verify *v, const char *name, int fd, struct err *err)
{
    auto_free char *piece = mem_alloc(PIECE);
    auto_buf text = { 0 };
    ssize_t n;

    if (v->r.fault || !begin_file(v, name))
        return 0;
    while ((n = read(fd, piece, PIECE)) != 0) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, ERR_SYS, "%.150s", name);
        buf_add(&text, piece, (size_t)n);
        if (!check_lines(v, &text))
            return 0;
    }
    v->last_line = v->line;
    if (text.len > 0) {
        v->line++;
        broken(v, VERIFY_TRUNCATED, v->r.last + 1, "the file ends within this line");
    }
    return 0;
}

void verify_end(struct verify *v)
{
    v->line = v->last_line;
    if (!v->r.fault && v->r.last < v->expect.seq)
        broken(v, VERIFY_TRUNCATED, v->r.last, "the log ends here, and record %" PRIu64 " was written", v->expect.seq);
}
