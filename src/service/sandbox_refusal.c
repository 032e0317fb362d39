/* Answers of requests to a sandbox, and refusals, which are reported at the end of the loop
 * iteration, so no caller is answered before its call has returned. */
#include "service/sandbox_internal.h"

#include "core/base/list.h"
#include "core/base/mem.h"

void sandbox_reply_send(const struct sandbox_reply *r, const struct err *err, const struct store_sandbox *row)
{
    if (r->on_usage)
        r->on_usage(r->arg, NULL, err);
    else if (r->on_connections)
        r->on_connections(r->arg, NULL, err);
    else if (r->on_acquired)
        r->on_acquired(r->arg, NULL, err);
    else if (r->on_execution)
        r->on_execution(r->arg, err, NULL);
    else if (r->done)
        r->done(r->arg, err, row);
}

static void sandbox_refusal_report(void *arg)
{
    auto_free struct sandbox_refusal *f = arg;

    linked_remove(f);
    ev_defer_clear(f->ev, &f->defer);
    sandbox_reply_send(&f->reply, &f->why, NULL);
}

void sandbox_refuse(struct sandbox_services *s, const struct sandbox_reply *reply, const struct err *why)
{
    struct sandbox_refusal *f = mem_new(struct sandbox_refusal);

    f->ev = s->ev;
    f->reply = *reply;
    f->why = *why;
    linked_push(&s->refusals, f);
    ev_defer(s->ev, &f->defer, sandbox_refusal_report, f);
}

void sandbox_refusals_report_all(struct sandbox_services *s)
{
    while (s->refusals)
        sandbox_refusal_report(s->refusals);
}

void sandbox_refusals_free(struct sandbox_services *s)
{
    while (s->refusals) {
        auto_free struct sandbox_refusal *f = s->refusals;

        linked_remove(f);
        ev_defer_clear(s->ev, &f->defer);
    }
}
