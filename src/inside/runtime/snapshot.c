/* Records are stored one after the other in one buffer, with a hash table of their positions: a
 * hundred thousand files need about twice the bytes of their paths. Content is identified by inode,
 * change time and size; a program cannot set the change time back, so every write is detected. */
#include "inside/runtime/snapshot.h"

#include "core/base/fd.h"
#include "core/base/hash.h"
#include "core/base/mem.h"

struct snapshot_record {
    struct snapshot_file f;
    uint32_t len; /* length of the path that follows, with its NUL */
    bool seen;
};

struct snapshot {
    struct buf records;
    size_t count;
    bool truncated;
    uint32_t *table; /* position + 1 of a record; 0: free */
    size_t slots;    /* a power of two, more than twice the count */
};

struct snapshot *snapshot_new(void)
{
    return mem_new(struct snapshot);
}

void snapshot_free(struct snapshot *m)
{
    if (!m)
        return;
    buf_done(&m->records);
    free(m->table);
    free(m);
}

static uint64_t snapshot_hash(const char *s)
{
    return hash_fold(hash_str(HASH_INIT, s));
}

/* Records are not aligned in the buffer, so they are copied in and out. */
static struct snapshot_record snapshot_record_at(const struct snapshot *m, size_t at)
{
    struct snapshot_record r;

    memcpy(&r, m->records.data + at, sizeof(r));
    return r;
}

static const char *snapshot_path_at(const struct snapshot *m, size_t at)
{
    return m->records.data + at + sizeof(struct snapshot_record);
}

static size_t snapshot_find_slot(const struct snapshot *m, const char *path)
{
    size_t i = snapshot_hash(path) & (m->slots - 1);

    while (m->table[i] && strcmp(snapshot_path_at(m, m->table[i] - 1), path) != 0)
        i = (i + 1) & (m->slots - 1);
    return i;
}

static void snapshot_rehash(struct snapshot *m)
{
    free(m->table);
    m->slots = m->slots ? 2 * m->slots : 64;
    m->table = mem_alloc(m->slots * sizeof(*m->table));
    for (size_t at = 0; at < m->records.len;) {
        m->table[snapshot_find_slot(m, snapshot_path_at(m, at))] = (uint32_t)at + 1;
        at += sizeof(struct snapshot_record) + snapshot_record_at(m, at).len;
    }
}

bool snapshot_add(struct snapshot *m, const char *path, const struct snapshot_file *f)
{
    struct snapshot_record r = { .f = *f, .len = (uint32_t)strlen(path) + 1 };

    if (m->count >= SNAPSHOT_ENTRIES_MAX || m->records.len + sizeof(r) + r.len > SNAPSHOT_BYTES_MAX) {
        m->truncated = true;
        return false;
    }
    if (2 * (m->count + 1) > m->slots)
        snapshot_rehash(m);
    size_t slot = snapshot_find_slot(m, path);
    if (m->table[slot]) /* renamed during the scan and seen twice */
        return true;
    m->table[slot] = (uint32_t)m->records.len + 1;
    buf_add(&m->records, &r, sizeof(r));
    buf_add(&m->records, path, r.len);
    m->count++;
    return true;
}

bool snapshot_truncated(const struct snapshot *m)
{
    return m->truncated;
}

size_t snapshot_count(const struct snapshot *m)
{
    return m->count;
}

static void snapshot_set_seen(struct snapshot *m, size_t at, bool seen)
{
    m->records.data[at + offsetof(struct snapshot_record, seen)] = seen;
}

void snapshot_begin_compare(struct snapshot *m)
{
    for (size_t at = 0; at < m->records.len; at += sizeof(struct snapshot_record) + snapshot_record_at(m, at).len)
        snapshot_set_seen(m, at, false);
}

char snapshot_compare(struct snapshot *m, const char *path, const struct snapshot_file *f)
{
    uint32_t place = m->slots ? m->table[snapshot_find_slot(m, path)] : 0;

    if (!place)
        return m->truncated ? 0 : RT_ADDED;
    struct snapshot_record r = snapshot_record_at(m, place - 1);
    if (r.seen)
        return 0;
    snapshot_set_seen(m, place - 1, true);
    if (r.f.kind != f->kind)
        return RT_MODIFIED;
    if (f->kind == 'd')
        return 0;
    return r.f.ino == f->ino && r.f.ctime_ns == f->ctime_ns && r.f.size == f->size ? 0 : RT_MODIFIED;
}

const char *snapshot_next_deleted(const struct snapshot *m, size_t *at, struct snapshot_file *ret)
{
    while (*at < m->records.len) {
        size_t here = *at;
        struct snapshot_record r = snapshot_record_at(m, here);

        *at += sizeof(r) + r.len;
        if (!r.seen) {
            *ret = r.f;
            return snapshot_path_at(m, here);
        }
    }
    return NULL;
}
