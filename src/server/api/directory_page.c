/* A directory has no order and changes while it is read, so a page cannot continue at a read
 * position. It continues after a name: each page reads the whole directory and keeps the smallest
 * names after that name in a max-heap, whose greatest entry is replaced when a smaller one arrives.
 * Memory is bounded by one page, whatever the size of the directory. An entry that exists during
 * all reads is on exactly one page. */
#include "server/api/directory_page.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

#define NAME_BYTES 255u

int directory_page_init(struct directory_page *l, size_t max, const char *cursor, struct err *err)
{
    uint8_t name[NAME_BYTES + 8];
    size_t len = 0, n = cursor ? strlen(cursor) : 0;

    *l = (struct directory_page){ .max = max };
    if (!cursor)
        return 0;
    if (n == 0 || n > (NAME_BYTES + 2) / 3 * 4 || !text_from_base64url(cursor, n, name, &len) || len == 0 ||
        len > NAME_BYTES || memchr(name, '\0', len) || memchr(name, '/', len))
        return err_set(err, ERR_INVALID, "cursor: not the nextCursor of a page of this list");
    l->after_name = str_dup_n((const char *)name, len);
    return 0;
}

static bool directory_page_less(const struct directory_page *l, size_t a, size_t b)
{
    return strcmp(l->heap[a]->name, l->heap[b]->name) < 0;
}

static void directory_page_swap(struct directory_page *l, size_t a, size_t b)
{
    struct files_entry *e = l->heap[a];

    l->heap[a] = l->heap[b];
    l->heap[b] = e;
}

static void directory_page_sift_up(struct directory_page *l, size_t i)
{
    for (; i > 0 && directory_page_less(l, (i - 1) / 2, i); i = (i - 1) / 2)
        directory_page_swap(l, i, (i - 1) / 2);
}

/* Restores the heap order of the first n entries. */
static void directory_page_sift_down(struct directory_page *l, size_t n)
{
    for (size_t i = 0, child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && directory_page_less(l, child, child + 1))
            child++;
        if (!directory_page_less(l, i, child))
            return;
        directory_page_swap(l, i, child);
    }
}

static struct files_entry *directory_page_copy_entry(const struct files_entry *e)
{
    size_t name = strlen(e->name) + 1, target = strlen(e->target) + 1;
    struct files_entry *own = mem_alloc(sizeof(*own) + name + target);
    char *text = (char *)(own + 1);

    *own = *e;
    own->name = memcpy(text, e->name, name);
    own->target = memcpy(text + name, e->target, target);
    return own;
}

void directory_page_add(struct directory_page *l, const struct files_entry *e)
{
    if (l->after_name && strcmp(e->name, l->after_name) <= 0)
        return;
    if (l->n == l->max + 1) { /* the entry beyond the page size shows that more pages follow */
        if (strcmp(e->name, l->heap[0]->name) >= 0)
            return;
        free(l->heap[0]);
        l->heap[0] = directory_page_copy_entry(e);
        directory_page_sift_down(l, l->n);
        return;
    }
    if (l->n == l->room) {
        l->room = min_size(l->room ? 2 * l->room : 64, l->max + 1);
        l->heap = mem_resize(l->heap, l->room, sizeof(struct files_entry *));
    }
    l->heap[l->n] = directory_page_copy_entry(e);
    directory_page_sift_up(l, l->n++);
}

bool directory_page_finish(struct directory_page *l, struct buf *ret_cursor)
{
    for (size_t n = l->n; n > 1; n--) {
        directory_page_swap(l, 0, n - 1);
        directory_page_sift_down(l, n - 1);
    }
    if (l->n <= l->max)
        return false;
    free(l->heap[--l->n]);
    const char *last = l->heap[l->n - 1]->name;
    text_base64url(ret_cursor, last, strlen(last));
    return true;
}

void directory_page_done(struct directory_page *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->heap[i]);
    free(l->heap);
    free(l->after_name);
    *l = (struct directory_page){ 0 };
}
