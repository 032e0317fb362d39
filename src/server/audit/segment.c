/* A file is read in pieces with pread and never mapped: if it is truncated while it is read, the
 * server must not die of a SIGBUS. */
#include "server/audit/segment.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#define PIECE (256 * KIB)
#define TAIL (2ull * CHAIN_LINE_MAX) /* bytes in which the last record is searched */

char *segment_name(uint32_t no, char buf[SEGMENT_NAME_SIZE])
{
    snprintf(buf, SEGMENT_NAME_SIZE, "%06" PRIu32 ".jsonl", no);
    return buf;
}

static bool segment_read_name(const char *name, uint32_t *ret)
{
    char same[SEGMENT_NAME_SIZE];
    const char *p = name;

    return str_eat_u32(&p, 4000000000u, ret) && *ret > 0 && str_eq(p, ".jsonl") &&
           str_eq(segment_name(*ret, same), name);
}

static int segment_by_number(const void *a, const void *b)
{
    const struct segment *x = a, *y = b;

    return x->no < y->no ? -1 : x->no > y->no;
}

int segment_list(int dir, struct segment **ret, size_t *ret_n, struct err *err)
{
    auto_fd int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    struct segment *list = NULL;
    const struct dirent *e;
    size_t n = 0;

    if (!d)
        return err_sys(err, ERR_STATE_DIR, "the directory of the audit trail");
    (void)take_fd(&fd);
    while ((e = readdir(d))) {
        struct segment s = { 0 };
        struct stat st;

        if (!segment_read_name(e->d_name, &s.no) || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode))
            continue;
        s.size = (uint64_t)st.st_size;
        list = mem_resize(list, n + 1, sizeof(*list));
        list[n++] = s;
    }
    closedir(d);
    if (n > 0)
        qsort(list, n, sizeof(*list), segment_by_number);
    *ret = list;
    *ret_n = n;
    return 0;
}

/* --- the end of a log --- */

static bool segment_line_is_valid(const char *line, size_t len, struct chain_line *ret)
{
    return chain_parse_line(line, len, ret, NULL) == 0 && chain_hash_matches(line, len, ret);
}

int segment_end(int fd, struct segment_end *ret, struct err *err)
{
    struct stat st;

    *ret = (struct segment_end){ 0 };
    if (fstat(fd, &st) < 0)
        return err_sys(err, ERR_SYS, "the audit trail");
    uint64_t size = (uint64_t)st.st_size, from = size > TAIL ? size - TAIL : 0;
    auto_free char *text = mem_alloc((size_t)(size - from) + 1);
    ssize_t got = fd_pread_full(fd, text, (size_t)(size - from), from);
    if (got < 0 || (uint64_t)got != size - from)
        return err_sys(err, ERR_SYS, "the audit trail");
    size_t end = (size_t)got;
    while (end > 0 && !ret->any) { /* no valid record begins after `end` */
        const char *stop = memrchr(text, '\n', end);

        if (!stop) {
            end = 0;
            break;
        }
        const char *before = stop > text ? memrchr(text, '\n', (size_t)(stop - text)) : NULL;
        const char *line = before ? before + 1 : text;
        ret->any = segment_line_is_valid(line, (size_t)(stop - line), &ret->line);
        end = ret->any ? (size_t)(stop + 1 - text) : (size_t)(line - text);
    }
    if (!ret->any && from > 0)
        return err_set(err, ERR_STATE_DIR,
                       "the end of the audit trail is damaged: its last %llu bytes contain no valid record", TAIL);
    ret->size = from + end;
    ret->torn = size - ret->size;
    chain_sha256(text + end, (size_t)got - end, ret->torn_hash);
    ret->line.tenant = ret->line.action = (struct chain_text){ 0 }; /* they point into `text`, which is freed */
    return 0;
}

/* --- lines --- */

int segment_each(int fd, uint64_t from, uint64_t to, bool (*fn)(void *arg, const char *line, size_t len, uint64_t next),
                 void *arg)
{
    auto_buf held = { 0 };
    auto_free char *piece = mem_alloc(PIECE);
    uint64_t at = from;

    while (at < to) {
        ssize_t n = fd_pread_full(fd, piece, (size_t)min_u64(PIECE, to - at), at);
        size_t done = 0;
        const char *stop;

        if (n <= 0)
            return n < 0 ? -1 : 0;
        while ((stop = memchr(piece + done, '\n', (size_t)n - done))) {
            const char *line = piece + done;
            size_t len = (size_t)(stop - line);

            if (held.len > 0) {
                buf_add(&held, line, len);
                line = held.data;
                len = held.len;
            }
            done = (size_t)(stop - piece) + 1;
            if (!fn(arg, line, len, at + done))
                return 0;
            buf_clear(&held);
        }
        buf_add(&held, piece + done, (size_t)n - done);
        if (held.len > CHAIN_LINE_MAX) { /* longer than any record: skip to the next line */
            buf_clear(&held);
            buf_adds(&held, "?");
        }
        at += (uint64_t)n;
    }
    return 0;
}

struct segment_search {
    uint64_t seq;         /* search the first record after this number */
    bool only_first, any; /* only_first: return the first record of any number */
    struct chain_line line;
    uint64_t begin, end;
};

static bool segment_search_line(void *arg, const char *line, size_t len, uint64_t next)
{
    struct segment_search *s = arg;

    if (!chain_peek(line, len, &s->line) || (!s->only_first && s->line.seq <= s->seq))
        return true;
    s->any = true;
    s->begin = next - len - 1;
    s->end = next;
    return false;
}

/* Binary search narrows the range to one piece. Records before `low` are never after `seq`, so the
 * scan continues from there. */
uint64_t segment_find(int fd, uint64_t size, uint64_t seq)
{
    uint64_t low = 0, high = size;
    struct segment_search s;

    while (high > low && high - low > PIECE) {
        uint64_t middle = low + (high - low) / 2; /* inside a line: its remaining part is not a valid record */

        s = (struct segment_search){ .only_first = true };
        if (segment_each(fd, middle, high, segment_search_line, &s) < 0)
            return size;
        if (s.any && s.line.seq <= seq)
            low = s.end;
        else
            high = middle;
    }
    s = (struct segment_search){ .seq = seq };
    if (segment_each(fd, low, size, segment_search_line, &s) < 0 || !s.any)
        return size;
    return s.begin;
}

bool segment_first(int fd, uint64_t size, uint64_t *ret_seq, uint64_t *ret_ms)
{
    struct segment_search s = { .only_first = true };

    if (segment_each(fd, 0, size, segment_search_line, &s) < 0 || !s.any)
        return false;
    *ret_seq = s.line.seq;
    *ret_ms = s.line.at_ms;
    return true;
}

struct segment_lookup {
    const struct chain_link *at;
    bool found;
};

static bool segment_compare_record(void *arg, const char *line, size_t len, uint64_t next UNUSED)
{
    struct segment_lookup *k = arg;
    struct chain_line l;

    k->found = chain_parse_line(line, len, &l, NULL) == 0 && l.seq == k->at->seq &&
               memcmp(l.hash, k->at->hash, CHAIN_HASH) == 0;
    return false;
}

int segment_lacks_record(int fd, uint64_t size, const struct chain_link *at, bool *ret, struct err *err)
{
    struct segment_lookup k = { .at = at };

    if (segment_each(fd, segment_find(fd, size, at->seq - 1), size, segment_compare_record, &k) < 0)
        return err_sys(err, ERR_SYS, "the audit trail");
    *ret = !k.found;
    return 0;
}
