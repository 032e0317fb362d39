/* A ring buffer of bytes, and a queue of runs that store their channel. A credit only advances the
 * head, so a long flood is copied only once, into the ring. The ring grows by doubling and is freed
 * when it is empty and large: an idle stream holds almost nothing.
 *
 * Invariant: the lengths of all runs add up to `len`, and no run is empty. */
#include "inside/runtime/unacked_data.h"

#include "core/base/mem.h"

#include <assert.h>

#define UNACKED_DATA_CAP_MIN 4096u
#define UNACKED_DATA_CAP_LARGE 65536u
#define RUN_LEN_MAX (UINT32_MAX >> 2)

void unacked_data_done(struct unacked_data *k)
{
    free(k->data);
    free(k->runs);
    *k = (struct unacked_data){ 0 };
}

static void unacked_data_copy_out(const struct unacked_data *k, size_t pos, uint8_t *out, size_t n)
{
    size_t at = (k->head + pos) & (k->cap - 1);
    size_t first = min_size(n, k->cap - at);

    memcpy(out, k->data + at, first);
    memcpy(out + first, k->data, n - first);
}

static void unacked_data_grow(struct unacked_data *k, size_t need)
{
    size_t cap = k->cap ? k->cap : UNACKED_DATA_CAP_MIN;

    if (need <= k->cap)
        return;
    while (cap < need)
        cap *= 2;
    uint8_t *data = mem_resize(NULL, cap, 1);
    if (k->len)
        unacked_data_copy_out(k, 0, data, k->len);
    free(k->data);
    k->data = data;
    k->cap = cap;
    k->head = 0;
}

static void unacked_data_push_run(struct unacked_data *k, uint8_t channel, size_t len)
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

void unacked_data_add(struct unacked_data *k, uint8_t channel, const void *data, size_t len, bool merge)
{
    assert(channel < 4 && len <= RUN_LEN_MAX);
    if (len == 0)
        return;
    unacked_data_grow(k, k->len + len);
    size_t at = (k->head + k->len) & (k->cap - 1);
    size_t first = min_size(len, k->cap - at);
    memcpy(k->data + at, data, first);
    memcpy(k->data, (const uint8_t *)data + first, len - first);
    k->len += len;

    uint32_t *tail = k->nruns ? &k->runs[k->runs_head + k->nruns - 1] : NULL;
    if (merge && tail && (*tail & 3) == channel && (*tail >> 2) + len <= RUN_LEN_MAX)
        *tail += (uint32_t)len << 2;
    else
        unacked_data_push_run(k, channel, len);
}

bool unacked_data_drop(struct unacked_data *k, size_t n)
{
    if (n > k->len)
        return false;
    k->read_run = k->read_pos = 0;
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
        if (k->cap > UNACKED_DATA_CAP_LARGE)
            unacked_data_done(k);
    }
    return true;
}

/* Reads go forward through many thousand runs, so the position is cached. */
size_t unacked_data_read(struct unacked_data *k, size_t pos, uint8_t *channel, uint8_t *out, size_t max)
{
    if (pos < k->read_pos)
        k->read_run = k->read_pos = 0;
    for (; k->read_run < k->nruns; k->read_run++) {
        uint32_t run = k->runs[k->runs_head + k->read_run];
        size_t end = k->read_pos + (run >> 2);

        if (pos < end) {
            size_t n = min_size(max, end - pos);

            unacked_data_copy_out(k, pos, out, n);
            *channel = run & 3;
            return n;
        }
        k->read_pos = end;
    }
    return 0;
}
