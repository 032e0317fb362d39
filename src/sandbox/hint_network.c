/* Hints about connections: a sandbox without a network, and destinations that the rules of a
 * sandbox refuse. The egress proxy reports each refusal with its reason, so a refused destination
 * needs no guess from messages: they only say that the failure was one of the network. */
#include "sandbox/hint_internal.h"

#include "core/base/str.h"
#include "policy/closed_ranges.h"

#include <ctype.h>

#define HINT_HOST_MAX 100u

/* The proxy reports names of the sandbox, in their normal form. */
static bool hint_is_plain_host(const char *host)
{
    size_t len = strlen(host);

    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)host[i]) && !strchr("._-:", host[i]))
            return false;
    return len > 0 && len <= HINT_HOST_MAX;
}

static void hint_add_target(struct hint *h, const struct egress_destination *d)
{
    if (d->port == 0) /* its name was refused by the resolver */
        buf_adds(&h->out, d->host);
    else
        buf_addf(&h->out, strchr(d->host, ':') ? "[%s]:%u" : "%s:%u", d->host, d->port);
}

/* The last destination in the list with such a counter: the others came before it. */
static const struct egress_destination *hint_find_destination(const struct hint *h, bool refused)
{
    const struct receipt_egress *e = h->facts->egress;

    for (size_t i = e && !e->absent_why ? e->ndestinations : 0; i > 0; i--) {
        const struct egress_destination *d = &e->destinations[i - 1];

        if ((refused ? d->refused : d->failed) > 0 && hint_is_plain_host(d->host))
            return d;
    }
    return NULL;
}

static void hint_add_reason(struct hint *h, const struct egress_destination *d)
{
    if (!d->reason[0])
        return;
    buf_adds(&h->out, ": ");
    for (const char *c = d->reason; *c; c++)
        buf_add(&h->out, isprint((unsigned char)*c) ? c : "?", 1);
}

/* The rules cannot allow an address of a closed range that the operator has not opened. */
static const char *hint_closed_range(const struct egress_destination *d)
{
    struct ip_address address;

    return ip_address_parse(d->host, strlen(d->host), &address) ? closed_range_of(&address, NULL, 0) : NULL;
}

static void hint_add_allow(struct hint *h, const struct egress_destination *d)
{
    bool run = h->facts->place == HINT_RUN;
    const char *range = hint_closed_range(d);

    if (range) {
        buf_addf(&h->out, " The address is closed (%s) unless the operator opened its range.", range);
        return;
    }
    buf_adds(&h->out, run ? " Allow it with --allow " : " Allow it with {\"allow\": \"");
    hint_add_target(h, d);
    if (run)
        buf_adds(&h->out, ".");
    else if (h->facts->place == HINT_EXECUTE)
        buf_adds(&h->out, "\"} in network.egress of the request.");
    else
        buf_adds(&h->out, "\"} in network.egress of the sandbox, which can be changed while it runs.");
}

/* A rule is missing. Other reasons are a rule that denies on purpose, or not in the rules. */
static bool hint_is_no_rule(const struct egress_destination *d)
{
    return str_starts(d->reason, "no rule");
}

bool hint_refused_destination(struct hint *h, const char *at UNUSED, const char *end UNUSED, const char *text UNUSED)
{
    const struct egress_destination *d = hint_find_destination(h, true);

    if (d) {
        buf_adds(&h->out, "The rules of this sandbox refused ");
        hint_add_target(h, d);
        hint_add_reason(h, d);
        buf_adds(&h->out, "; trying again does not help.");
        if (hint_is_no_rule(d))
            hint_add_allow(h, d);
        return true;
    }
    d = hint_find_destination(h, false);
    if (!d)
        return false;
    hint_add_target(h, d);
    buf_adds(&h->out, " is allowed, but could not be reached");
    hint_add_reason(h, d);
    buf_adds(&h->out, ".");
    return true;
}

bool hint_network(struct hint *h, const char *at UNUSED, const char *end UNUSED, const char *text UNUSED)
{
    if (h->facts->has_network)
        return hint_refused_destination(h, NULL, NULL, NULL);
    buf_adds(&h->out,
             "There is no network in this sandbox: names are not resolved and no other host can be reached, so "
             "trying again does not help. ");
    if (h->facts->place == HINT_RUN)
        buf_adds(&h->out, "Allow a host with --allow HOST; or fetch the data outside, and pass it with "
                          "--workspace DIR or on standard input.");
    else if (h->facts->place == HINT_EXECUTE)
        buf_adds(&h->out, "Allow hosts with network: {\"allow\": [HOST]} in the request; or fetch the data outside, "
                          "and pass it in `files` or `stdin`.");
    else
        buf_adds(&h->out, "Create the sandbox with network: {\"allow\": [HOST]}; or fetch the data outside, and "
                          "write it into the sandbox with the files API.");
    return true;
}

bool hint_refused_connection(struct hint *h, const char *at UNUSED, const char *end UNUSED, const char *text UNUSED)
{
    bool local = hint_has_text(h, "127.0.0.1") || hint_has_text(h, "localhost") || hint_has_text(h, "::1");

    if (!local || hint_refused_destination(h, NULL, NULL, NULL))
        return !local ? hint_network(h, NULL, NULL, NULL) : true;
    buf_adds(&h->out,
             "Nothing listens on that port of localhost, which in a sandbox is the sandbox itself and not its host. "
             "Start the server in the same sandbox first");
    if (h->facts->place == HINT_RUN || h->facts->place == HINT_EXECUTE)
        buf_adds(&h->out, ", in the same execution");
    else
        buf_adds(&h->out, ", with background: true");
    buf_adds(&h->out, h->facts->has_network ? "." : "; no server outside can be reached.");
    return true;
}
