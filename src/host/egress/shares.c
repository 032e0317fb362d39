#include "host/egress/shares.h"

#include "core/base/list.h"
#include "core/base/mem.h"
#include "core/base/str.h"

bool share_bucket_take(struct share_bucket *b, unsigned rate, unsigned burst, uint64_t now, uint64_t *ret_at)
{
    uint64_t interval = NS_PER_S / rate, window = interval * burst;
    uint64_t from = max_u64(b->full_at, now);

    if (from + interval > now + window) {
        *ret_at = from + interval - window;
        return false;
    }
    b->full_at = from + interval;
    return true;
}

void shares_init(struct shares *s, size_t connections_max, size_t tenant_connections_max)
{
    *s = (struct shares){ .connections_max = connections_max, .tenant_connections_max = tenant_connections_max };
}

void shares_done(struct shares *s)
{
    for (struct share_tenant *t = s->tenants, *next; t; t = next) {
        next = t->next;
        free(t);
    }
    s->tenants = NULL;
}

struct share_tenant *shares_join(struct shares *s, const char *tenant)
{
    struct share_tenant *t = s->tenants;

    while (t && !str_eq(t->name, tenant))
        t = t->next;
    if (!t) {
        t = mem_new(struct share_tenant);
        (void)str_copy(t->name, sizeof(t->name), tenant);
        list_push(&s->tenants, t);
    }
    t->sandboxes++;
    return t;
}

static void shares_free_if_unused(struct shares *s, struct share_tenant *t)
{
    if (t->sandboxes || t->connections)
        return;
    list_remove(&s->tenants, t);
    free(t);
}

void shares_leave(struct shares *s, struct share_tenant *t)
{
    t->sandboxes--;
    shares_free_if_unused(s, t);
}

static void shares_begin_turn(struct share_tenant *t, uint64_t turn)
{
    if (t->turn == turn)
        return;
    t->turn = turn;
    t->turn_accepts = 0;
    t->turn_bytes = 0;
}

bool shares_may_accept(struct shares *s, struct share_tenant *t, uint64_t turn)
{
    shares_begin_turn(t, turn);
    if (s->turn != turn) {
        s->turn = turn;
        s->turn_accepts = 0;
    }
    if (s->turn_accepts == SHARES_ACCEPTS_PER_TURN || t->turn_accepts == SHARES_TENANT_ACCEPTS_PER_TURN)
        return false;
    s->turn_accepts++;
    t->turn_accepts++;
    return true;
}

bool shares_has_room(const struct shares *s, const struct share_tenant *t)
{
    return t->connections < s->tenant_connections_max && s->connections < s->connections_max &&
           t->connections < 2 * (s->connections_max - s->connections);
}

void shares_add_connection(struct shares *s, struct share_tenant *t)
{
    s->connections++;
    t->connections++;
}

void shares_remove_connection(struct shares *s, struct share_tenant *t)
{
    s->connections--;
    t->connections--;
    shares_free_if_unused(s, t);
}

bool shares_may_buffer(const struct shares *s, const struct share_tenant *t)
{
    return s->buffered < SHARES_BUFFERS && t->buffered <= 2 * (SHARES_BUFFERS - s->buffered);
}

bool shares_may_move(struct shares *s, struct share_tenant *t, uint64_t turn)
{
    shares_begin_turn(t, turn);
    return t->turn_bytes < SHARES_TENANT_BYTES_PER_TURN && shares_may_buffer(s, t);
}

void shares_count_moved(struct share_tenant *t, size_t bytes)
{
    t->turn_bytes += bytes;
}

void shares_buffer(struct shares *s, struct share_tenant *t, size_t bytes)
{
    s->buffered += bytes;
    t->buffered += bytes;
}

void shares_unbuffer(struct shares *s, struct share_tenant *t, size_t bytes)
{
    s->buffered -= bytes;
    t->buffered -= bytes;
}
