/* A few places, filled in turn: there are a handful of templates that anybody asks for often.
 *
 * 1. What was asked of the store before a change is not kept after it, whenever the answer comes: each question
 *    remembers how many changes there were. */
#include "sandbox/shelf.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"

#define PLACES 16u
#define FRESH_NS (1 * NS_PER_S) /* somebody else may write to the same store */

struct place {
    struct store_template row; /* without a spec: nothing stands here */
    uint64_t at_ns;
};

struct question {
    struct question *next, **at;
    struct shelf *shelf; /* NULL: it is gone */
    uint64_t changes, now_ns;
    store_template_fn *done;
    void *arg;
};

struct shelf {
    struct store *store;
    uint64_t changes;
    struct question *questions;
    struct place places[PLACES];
    size_t next;
};

struct shelf *shelf_new(struct store *st)
{
    struct shelf *s = mem_new(struct shelf);

    s->store = st;
    return s;
}

static void clear(struct place *p)
{
    free(p->row.spec_json);
    *p = (struct place){ 0 };
}

void shelf_free(struct shelf *s)
{
    if (!s)
        return;
    for (struct question *q = s->questions; q; q = q->next)
        q->shelf = NULL;
    for (size_t i = 0; i < PLACES; i++)
        clear(&s->places[i]);
    free(s);
}

static struct place *find(struct shelf *s, const char *name)
{
    for (size_t i = 0; i < PLACES; i++)
        if (s->places[i].row.spec_json && str_eq(s->places[i].row.name, name))
            return &s->places[i];
    return NULL;
}

static void keep(struct shelf *s, const struct store_template *row, uint64_t now_ns)
{
    struct place *p = find(s, row->name);

    if (!p)
        p = &s->places[s->next++ % PLACES];
    clear(p);
    p->row = *row;
    p->row.spec_json = str_dup(row->spec_json);
    p->at_ns = now_ns;
}

static void on_row(void *arg, const struct err *err, const struct store_template *row)
{
    auto_free struct question *q = arg;
    struct shelf *s = q->shelf;

    if (s) {
        *q->at = q->next;
        if (q->next)
            q->next->at = q->at;
        if (!err && q->changes == s->changes)
            keep(s, row, q->now_ns);
    }
    q->done(q->arg, err, row);
}

void shelf_get(struct shelf *s, const char *name, uint64_t now_ns, store_template_fn *done, void *arg)
{
    const struct place *p = find(s, name);

    if (p && now_ns - p->at_ns < FRESH_NS) {
        done(arg, NULL, &p->row);
        return;
    }
    struct question *q = mem_new(struct question);
    *q = (struct question){
        .next = s->questions, .at = &s->questions, .shelf = s, .changes = s->changes, .now_ns = now_ns
    };
    q->done = done;
    q->arg = arg;
    if (q->next)
        q->next->at = &q->next;
    s->questions = q;
    template_get(s->store, name, on_row, q);
}

void shelf_drop(struct shelf *s, const char *name)
{
    struct place *p = find(s, name);

    s->changes++;
    if (p)
        clear(p);
}
