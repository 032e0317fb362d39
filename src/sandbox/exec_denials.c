/* The refused system calls in the receipt of an execution.
 *
 * The monitor counts per sandbox from its creation, in a list that only grows. Counts since the
 * baseline of an execution belong to it, or to others that ran at the same time.
 *
 * A language kernel lives over many executions of a context. Its owner marks the start of each and
 * collects its denials at the end: the receipt has the denials since the mark, also if the process
 * ends first.
 *
 * Invariants:
 * 1. A collection that exec_handle_collect_denials left open ends once: with the monitor's answer,
 *    at MONITOR_ANSWER_NS, or before the end of the process is reported.
 * 2. The monitor is not asked if it is certain that there is nothing new. */
#include "sandbox/engine_internal.h"

#include "core/base/mem.h"
#include "policy/denial.h"

/* --- the monitor's answers --- */

void denials_store_answer(struct sandbox_handle *b, const struct driver_denials *d, const struct err *err)
{
    if (d)
        b->denials = *d;
    if (err && b->link->denials_absent_why)
        b->denials_absent_why = b->link->denials_absent_why;
    else
        b->denials_absent_why = d ? d->absent_why : "the monitor did not answer";
    b->has_new_denials = b->denials_absent_why != NULL; /* ask again, since there was no answer */
    b->denials_known = b->denials_known || !b->denials_absent_why;
}

void denials_monitor_lost(struct sandbox_handle *b)
{
    b->is_monitored = b->has_new_denials = false;
    b->denials = (struct driver_denials){ 0 };
    memset(b->denials_reported, 0, sizeof(b->denials_reported));
    for (struct exec_handle *x = b->execs; x; x = x->next) {
        x->denials_uncounted = x->denials_uncounted || x->state != EXEC_ENDED;
        memset(x->denials_baseline, 0, sizeof(x->denials_baseline));
    }
}

/* --- the receipt --- */

void denials_mark_baseline(struct exec_handle *x)
{
    const struct driver_denials *d = &x->sandbox->denials;

    /* A monitor that connects later does not know earlier denials. */
    x->denials_uncounted = x->sandbox->link->denials_absent_why != NULL;
    for (uint32_t i = 0; i < d->n; i++)
        x->denials_baseline[i] = d->entries[i].count;
    x->denials_baseline[DRIVER_DENIALS_MAX] = d->overflow_count;
}

void denials_set_absent(struct exec_handle *x, const char *why)
{
    x->receipt.ndenials = 0;
    x->receipt.denials_more = 0;
    x->receipt.denials_why = why;
}

/* How often this row of the list was denied to the execution. A language kernel lives beside
 * executions with receipts of their own; denials that one of those receipts contains are not
 * counted again. */
static uint64_t denials_new_count(struct exec_handle *x, size_t row, uint64_t count)
{
    uint64_t *reported = &x->sandbox->denials_reported[row];
    uint64_t from = x->is_language_kernel ? max_u64(x->denials_baseline[row], *reported) : x->denials_baseline[row];

    *reported = max_u64(*reported, count);
    return count > from ? count - from : 0; /* whatever the monitor reports, a count is never negative */
}

static const char *denials_unknown_why(const struct exec_handle *x)
{
    if (x->is_resumed && !x->denials_marked)
        return exec_receipt_resumed_why;
    if (x->sandbox->denials_absent_why)
        return x->sandbox->denials_absent_why;
    if (x->denials_uncounted)
        return "the monitor was not available for a part of its run; denials in that time are unknown";
    if (x->denials_mark_unknown)
        return "the server was restarted before it, and the denials until then are not known";
    return NULL;
}

static void denials_add(struct exec_handle *x, const struct driver_denial *d, uint64_t count)
{
    struct receipt *r = &x->receipt;
    uint64_t args[6] = { 0 };

    for (size_t a = 0; a < DRIVER_DENIAL_ARGS; a++)
        args[a] = d->args[a];
    if (!r->denials)
        r->denials = mem_new_array(struct denial_count, DRIVER_DENIALS_MAX);
    struct denial_count *to = &r->denials[r->ndenials++];
    denial_describe(&x->sandbox->kind.filter, d->nr, args, &to->denial);
    to->count = count;
}

static void denials_fill(struct exec_handle *x)
{
    const struct driver_denials *d = &x->sandbox->denials;

    denials_set_absent(x, denials_unknown_why(x));
    if (x->receipt.denials_why)
        return;
    for (uint32_t i = 0; i < d->n; i++) {
        uint64_t count = denials_new_count(x, i, d->entries[i].count);

        if (count > 0)
            denials_add(x, &d->entries[i], count);
    }
    x->receipt.denials_more = denials_new_count(x, DRIVER_DENIALS_MAX, d->overflow_count);
}

void denials_fill_receipt(struct exec_handle *x)
{
    denials_end_collection(x);
    denials_fill(x);
}

/* --- executions of a language kernel --- */

static void denials_complete_collection(struct exec_handle *x)
{
    if (!x->is_collection_open || x->denials_request || x->network_request)
        return;
    x->is_collection_open = false;
    if (x->ops && x->ops->on_denials)
        x->ops->on_denials(x->arg);
}

static void denials_end_request(struct exec_handle *x)
{
    x->denials_request = NULL;
    ev_timer_clear(x->ev, &x->denials_timer);
}

void denials_on_network(struct exec_handle *x)
{
    denials_complete_collection(x);
}

static void denials_on_answer(struct driver_request *r, const struct driver_denials *d, const struct err *err)
{
    struct exec_handle *x = r->owner;

    denials_store_answer(x->sandbox, d, err);
    denials_fill(x);
    denials_end_request(x);
    denials_complete_collection(x);
}

static void denials_on_timer(void *arg)
{
    struct exec_handle *x = arg;

    driver_callback_begin();
    driver_request_forget(x->denials_request);
    denials_store_answer(x->sandbox, NULL, NULL);
    denials_fill(x);
    denials_end_request(x);
    denials_complete_collection(x);
    driver_callback_end();
}

void denials_end_collection(struct exec_handle *x)
{
    if (!x->is_collection_open)
        return;
    if (x->denials_request) {
        driver_request_forget(x->denials_request);
        denials_end_request(x);
        if (x->sandbox->has_new_denials)
            denials_set_absent(x, "its process ended before the monitor answered");
        else
            denials_fill(x);
    }
    if (x->network_request)
        exec_network_fill_receipt(x);
    denials_complete_collection(x);
}

void denials_drop_collection(struct exec_handle *x)
{
    x->is_collection_open = false;
    exec_network_drop_collection(x);
    if (!x->denials_request)
        return;
    driver_request_forget(x->denials_request);
    denials_end_request(x);
}

void exec_handle_mark_denials(struct exec_handle *x)
{
    if (!x->sandbox || x->state == EXEC_ENDED)
        return;
    denials_mark_baseline(x);
    denials_set_absent(x, "the execution has not ended");
    x->network_uncounted = false;
    x->denials_marked = true;
    x->denials_mark_unknown = x->sandbox->adopted && !x->sandbox->denials_known;
}

/* True: the monitor is asked. */
static bool denials_collect(struct exec_handle *x, bool was_cut_off)
{
    struct sandbox_handle *b = x->sandbox;

    if (b->link->denials_absent_why) {
        denials_set_absent(x, b->link->denials_absent_why);
        return false;
    }
    /* An execution that was cut off may still wait for the monitor's answer. */
    if (!was_cut_off && !x->denials_mark_unknown && engine_has_no_new_denials(b)) {
        b->denials_absent_why = NULL;
        denials_fill(x);
        return false;
    }
    x->denials_request = b->link->ops->denials(b->link, b->id, denials_on_answer, x);
    ev_timer_set(x->ev, &x->denials_timer, ev_now(x->ev) + MONITOR_ANSWER_NS, denials_on_timer, x);
    return true;
}

bool exec_handle_collect_denials(struct exec_handle *x, bool was_cut_off)
{
    if (!x->sandbox || x->state == EXEC_ENDED || x->is_collection_open)
        return true;
    bool asks_monitor = denials_collect(x, was_cut_off);
    bool asks_proxy = exec_network_collect(x);
    x->is_collection_open = asks_monitor || asks_proxy;
    return !x->is_collection_open;
}
