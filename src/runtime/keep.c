/* A ring of bytes and, beside it, a queue of runs that say to which channel they belong. A credit only moves the head,
 * so a long flood costs no copying beyond the one into the ring. The ring grows by doubling and is let go when it is
 * empty and large: an idle stream holds almost nothing.
 *
 * Invariant: the lengths of all runs add up to `len`, and no run is empty. */
#include "runtime/keep.h"

#include "base/mem.h"

#include <assert.h>

#define KEEP_FIRST 4096u
#define KEEP_LARGE 65536u
#define RUN_LEN_MAX (UINT32_MAX >> 2)

void keep_done(struct keep *k)
{
    free(k->data);
    free(k->runs);
    *k = (struct keep){ 0 };
}

static void copy_out(const struct keep *k, size_t pos, uint8_t *out, size_t n)
{
    size_t at = (k->head + pos) & (k->cap - 1);
    size_t first = min_size(n, k->cap - at);

    memcpy(out, k->data + at, first);
    memcpy(out + first, k->data, n - first);
}

static void grow(struct keep *k, size_t need)
{
    size_t cap = k->cap ? k->cap : KEEP_FIRST;

    if (need <= k->cap)
        return;
    while (cap < need)
        cap *= 2;
    uint8_t *data = mem_resize(NULL, cap, 1);
    if (k->len)
        copy_out(k, 0, data, k->len);
    free(k->data);
    k->data = data;
    k->cap = cap;
    k->head = 0;
}

static void push_run(struct keep *k, uint8_t channel, size_t len)
{
    bool full = k->runs_head + k->nruns == k->runs_cap;

    if (!k->runs || (full && 2 * k->nruns > k->runs_cap)) {
        k->runs_cap = k->runs_cap ? 2 * k->runs_cap : 8;
        k->runs = mem_resize(k->runs, k->runs_cap, sizeof(*k->runs));
    } else if (full) {
        memmove(k->runs, k->runs + k->runs_head, k->nruns * sizeof(*k->runs));
        k->runs_head = 0;
    }
    k->runs[k->runs_head + k->nruns++] = (uint32_t)len << 2 | channel;
}

void keep_add(struct keep *k, uint8_t channel, const void *data, size_t len, bool merge)
{
    assert(channel < 4 && len <= RUN_LEN_MAX);
    if (len == 0)
        return;
    grow(k, k->len + len);
    size_t at = (k->head + k->len) & (k->cap - 1);
    size_t first = min_size(len, k->cap - at);
    memcpy(k->data + at, data, first);
    memcpy(k->data, (const uint8_t *)data + first, len - first);
    k->len += len;

    uint32_t *tail = k->nruns ? &k->runs[k->runs_head + k->nruns - 1] : NULL;
    if (merge && tail && (*tail & 3) == channel && (*tail >> 2) + len <= RUN_LEN_MAX)
        *tail += (uint32_t)len << 2;
    else
        push_run(k, channel, len);
}

bool keep_drop(struct keep *k, size_t n)
{
    if (n > k->len)
        return false;
    k->at_run = k->at_pos = 0;
    k->len -= n;
    if (k->cap)
        k->head = (k->head + n) & (k->cap - 1);
    while (n > 0) {
        uint32_t *run = &k->runs[k->runs_head];
        size_t take = min_size(n, *run >> 2);

        *run -= (uint32_t)take << 2;
        n -= take;
        if (*run >> 2 == 0) {
            k->runs_head++;
            k->nruns--;
        }
    }
    if (k->len == 0) {
        k->runs_head = 0;
        if (k->cap > KEEP_LARGE)
            keep_done(k);
    }
    return true;
}

/* Reading goes forward through many thousand runs, so the place is remembered. */
size_t keep_read(struct keep *k, size_t pos, uint8_t *channel, uint8_t *out, size_t max)
{
    if (pos < k->at_pos)
        k->at_run = k->at_pos = 0;
    for (; k->at_run < k->nruns; k->at_run++) {
        uint32_t run = k->runs[k->runs_head + k->at_run];
        size_t end = k->at_pos + (run >> 2);

        if (pos < end) {
            size_t n = min_size(max, end - pos);

            copy_out(k, pos, out, n);
            *channel = run & 3;
            return n;
        }
        k->at_pos = end;
    }
    return 0;
}
