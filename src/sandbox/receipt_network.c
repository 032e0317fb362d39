#include "sandbox/receipt_network.h"

#include "core/base/str.h"

#include <ctype.h>

#define RECEIPT_PRINTED_DESTINATIONS 8u

bool receipt_network_is_used(const struct receipt *r)
{
    const struct receipt_egress *e = &r->egress;

    return r->network.mode != NETWORK_NONE && !e->absent_why && e->connections + e->refused + e->failed > 0;
}

/* --- JSON --- */

const char *receipt_network_carrier(uint8_t carrier)
{
    static const char *const names[] = {
        [EGRESS_CARRIER_NONE] = "none", [EGRESS_CARRIER_PROXY] = "proxy", [EGRESS_CARRIER_TPROXY] = "tproxy"
    };

    return carrier < ARRAY_LEN(names) ? names[carrier] : names[EGRESS_CARRIER_NONE];
}

/* One canonical rule in a line. */
static void receipt_network_json_rules(const char *rules, struct jsonw *w)
{
    jsonw_key(w, "rules");
    jsonw_array(w);
    for (const char *line = rules ? rules : ""; *line;) {
        size_t len = strcspn(line, "\n");

        if (len > 0)
            jsonw_strn(w, line, len);
        line += len + (line[len] == '\n');
    }
    jsonw_end_array(w);
}

static void receipt_network_json_destinations(const struct receipt_egress *e, struct jsonw *w)
{
    jsonw_key(w, "destinations");
    jsonw_array(w);
    for (size_t i = 0; i < e->ndestinations; i++) {
        const struct egress_destination *d = &e->destinations[i];

        jsonw_object(w);
        jsonw_kstr(w, "host", d->host);
        jsonw_ku64(w, "port", d->port);
        jsonw_ku64(w, "connections", d->connections);
        jsonw_ku64(w, "refused", d->refused);
        jsonw_ku64(w, "failed", d->failed);
        jsonw_ku64(w, "receivedBytes", d->received);
        jsonw_ku64(w, "sentBytes", d->sent);
        if (d->reason[0])
            jsonw_kstr(w, "reason", d->reason);
        jsonw_end_object(w);
    }
    jsonw_end_array(w);
}

void receipt_network_json(const struct receipt *r, bool with_rules, struct jsonw *w)
{
    const struct receipt_egress *e = &r->egress;

    jsonw_object(w);
    jsonw_kstr(w, "mode", network_mode_name(r->network.mode));
    jsonw_kstr(w, "carrier", receipt_network_carrier(e->carrier));
    if (with_rules)
        receipt_network_json_rules(r->network.rules, w);
    if (e->absent_why) {
        jsonw_kstr(w, "absentWhy", e->absent_why);
    } else {
        jsonw_ku64(w, "connections", e->connections);
        jsonw_ku64(w, "refused", e->refused);
        jsonw_ku64(w, "failed", e->failed);
        jsonw_ku64(w, "receivedBytes", e->received_bytes);
        jsonw_ku64(w, "sentBytes", e->sent_bytes);
        receipt_network_json_destinations(e, w);
        jsonw_ku64(w, "otherDestinations", e->other_destinations);
    }
    jsonw_end_object(w);
}

/* --- for a person --- */

/* Names and reasons come from outside of this program. */
static void receipt_network_add_text(struct buf *out, const char *s)
{
    for (; *s; s++)
        buf_add(out, isprint((unsigned char)*s) ? s : "?", 1);
}

static void receipt_network_add_target(struct buf *out, const struct egress_destination *d)
{
    bool is_v6 = strchr(d->host, ':') != NULL;

    buf_adds(out, is_v6 ? "[" : "");
    receipt_network_add_text(out, d->host);
    buf_adds(out, is_v6 ? "]" : "");
    if (d->port) /* 0: its name was refused by the resolver */
        buf_addf(out, ":%u", d->port);
}

static const char *receipt_network_separator(struct buf *out, size_t from)
{
    return out->len == from ? "network  " : ", ";
}

static void receipt_network_add_problem(struct buf *out, const char *what, uint64_t count,
                                        const struct egress_destination *d)
{
    buf_adds(out, what);
    receipt_network_add_target(out, d);
    if (count > 1)
        buf_addf(out, " (%" PRIu64 " times)", count);
    if (d->reason[0]) {
        buf_adds(out, ": ");
        receipt_network_add_text(out, d->reason);
    }
}

static void receipt_network_print_destination(const struct egress_destination *d, size_t from, struct buf *out)
{
    char text[32];

    if (d->connections || d->received || d->sent) {
        buf_addf(out, "%sreached ", receipt_network_separator(out, from));
        receipt_network_add_target(out, d);
        buf_addf(out, " (%s)", str_size(d->received + d->sent, text));
    }
    if (d->refused) {
        buf_adds(out, receipt_network_separator(out, from));
        receipt_network_add_problem(out, "refused ", d->refused, d);
    }
    if (d->failed) {
        buf_adds(out, receipt_network_separator(out, from));
        receipt_network_add_problem(out, "failed ", d->failed, d);
    }
}

void receipt_network_print(const struct receipt *r, struct buf *out)
{
    const struct receipt_egress *e = &r->egress;
    size_t from = out->len,
           shown = e->ndestinations < RECEIPT_PRINTED_DESTINATIONS ? e->ndestinations : RECEIPT_PRINTED_DESTINATIONS;
    uint64_t rest = e->ndestinations - shown + e->other_destinations;

    if (r->network.mode == NETWORK_NONE)
        return;
    if (e->absent_why) {
        buf_addf(out, "unknown  %s: network\n", e->absent_why);
        return;
    }
    for (size_t i = 0; i < shown; i++)
        receipt_network_print_destination(&e->destinations[i], from, out);
    if (rest)
        buf_addf(out, "%sand %" PRIu64 " more", receipt_network_separator(out, from), rest);
    buf_adds(out, out->len == from ? "network  no connection\n" : "\n");
}
