/* The connections in the receipt of an execution.
 *
 * The egress proxy counts per sandbox. A receipt has the counts since the receipt before it, also
 * if that belongs to another execution, so the receipts of a sandbox add up to its totals. Counts
 * after the end belong to an execution only if it is the only one of its sandbox. */
#include "sandbox/engine_internal.h"

#include "core/base/mem.h"

static const char exec_network_lost_why[] = "the egress proxy ended while the execution ran, and its counters with it";
static const char exec_network_silent_why[] = "the egress proxy did not report it";

static void exec_network_set_absent(struct exec_handle *x, const char *why)
{
    x->receipt.egress.ndestinations = 0;
    x->receipt.egress.absent_why = why;
}

static void exec_network_fill(struct receipt *r, const struct network_usage *u)
{
    struct receipt_egress *e = &r->egress;

    e->connections = u->connections;
    e->refused = u->refused;
    e->failed = u->failed;
    e->received_bytes = u->received;
    e->sent_bytes = u->sent;
    e->other_destinations = u->other_destinations;
    e->absent_why = NULL;
    e->ndestinations = u->n;
    if (u->n && !e->destinations) /* with room for the final ones: copies of the receipt share the list */
        e->destinations = mem_new_array(struct egress_destination, EGRESS_DESTINATIONS_MAX);
    if (u->n)
        memcpy(e->destinations, u->destinations, u->n * sizeof(*u->destinations));
}

static void exec_network_fill_rules(struct exec_handle *x)
{
    const struct network_policy *now = &x->sandbox->network;

    if (network_policy_equal(&x->receipt.network, now))
        return;
    network_policy_done(&x->receipt.network);
    network_policy_copy(&x->receipt.network, now);
}

void exec_network_fill_receipt(struct exec_handle *x)
{
    struct sandbox_network *n = x->sandbox->egress;
    struct network_usage own;

    exec_network_drop_collection(x);
    if (!n)
        return;
    exec_network_fill_rules(x);
    if (x->is_resumed && !x->denials_marked) {
        exec_network_set_absent(x, exec_receipt_resumed_why);
    } else if (x->network_uncounted) {
        exec_network_set_absent(x, exec_network_lost_why);
    } else {
        network_usage_difference(&n->seen, &n->charged, &own);
        exec_network_fill(&x->receipt, &own);
        network_usage_done(&own);
    }
    network_usage_copy(&n->charged, &n->seen);
}

void exec_network_fill_final(struct exec_handle *x)
{
    const struct sandbox_network *n = x->sandbox->egress;

    if (n && !x->receipt.egress.absent_why)
        exec_network_fill(&x->receipt, &n->seen);
}

static void exec_network_on_collected(struct egress_request *r, const struct egress_reported *m,
                                      const struct err *err UNUSED)
{
    struct exec_handle *x = r->owner;

    x->network_request = NULL;
    if (m && x->sandbox->egress)
        sandbox_network_see(x->sandbox, m);
    exec_network_fill_receipt(x);
    if (!m && !x->receipt.egress.absent_why)
        exec_network_set_absent(x, exec_network_silent_why);
    if (x->state == EXEC_COLLECTING)
        exec_receipt_on_network(x);
    else
        denials_on_network(x);
}

bool exec_network_collect(struct exec_handle *x)
{
    struct sandbox_handle *b = x->sandbox;

    if (!b->egress || !b->engine || x->network_request)
        return x->network_request;
    x->network_request = egress_link_report(&b->engine->egress, b->id, exec_network_on_collected, x);
    return true;
}

void exec_network_drop_collection(struct exec_handle *x)
{
    if (x->network_request)
        egress_request_forget(x->network_request);
    x->network_request = NULL;
}
