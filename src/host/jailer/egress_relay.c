/* In a service, duplicates stay while the proxy is absent for longer than the grace period: new
 * sandboxes with a network are refused then, but connections of those that exist wait for the next
 * proxy, which allows nothing until the engine binds rules again. The proxy of `cove run` is not
 * replaced, so its duplicates are closed, and the kernel refuses connections at once. */
#include "host/jailer/egress_relay.h"

#include "core/wire/egress.h"
#include "host/jailer/jailer_internal.h"

_Static_assert((int)EGRESS_NET_DNS_UDP == (int)EGRESS_LISTEN_DNS_UDP &&
                   (int)EGRESS_NET_DNS_TCP == (int)EGRESS_LISTEN_DNS_TCP &&
                   (int)EGRESS_NET_PROXY == (int)EGRESS_LISTEN_PROXY && (int)EGRESS_NET_ANY == (int)EGRESS_LISTEN_ANY,
               "the descriptors are sent unchanged");
_Static_assert(EGRESS_NET_PROXY_PORT == EGRESS_PROXY_PORT && EGRESS_NET_ANY_PORT == EGRESS_ANY_PORT &&
                   EGRESS_NET_ADDRESS + 1 == EGRESS_ADDRESS_FIRST,
               "the proxy knows the ports and addresses");

static void egress_relay_send(struct jailed_sandbox *sandbox, uint8_t type, const uint8_t *payload, int len,
                              const struct egress_net *listeners)
{
    if (len >= 0)
        helper_link_send(&sandbox->jailer->egress,
                         &(struct frame){ .type = type, .len = (uint32_t)len, .data = payload }, listeners->fds,
                         listeners->n);
}

static void egress_relay_announce(struct jailed_sandbox *sandbox)
{
    struct egress_listen m = { .carrier = sandbox->created.egress_carrier };
    PAYLOAD(payload);

    memcpy(m.id, sandbox->id, sizeof(m.id));
    if (sandbox->egress.n)
        egress_relay_send(sandbox, FRAME_E_LISTEN, payload, egress_listen_encode(&m, payload, NULL), &sandbox->egress);
}

static void egress_relay_on_absent(struct jailer *j)
{
    if (j->settings->egress)
        return;
    for (struct jailed_sandbox *sandbox = j->sandboxes; sandbox; sandbox = sandbox->next)
        egress_net_close(&sandbox->egress);
}

static const struct helper_link_ops egress_relay_ops = {
    .loss = "the egress proxy ended; sandboxes have no network until it restarts",
    .announce = egress_relay_announce,
    .on_absent = egress_relay_on_absent,
};

int egress_relay_start(struct jailer *j, struct err *err)
{
    if (j->settings->egress_fd > 0)
        return helper_link_start_with(&j->egress, j, j->settings->egress_fd, &egress_relay_ops, err);
    if (j->settings->egress)
        helper_link_start(&j->egress, j, j->settings->egress, &egress_relay_ops);
    return 0;
}

int egress_relay_check(const struct jailer *j, struct err *err)
{
    if (!j->egress.jailer)
        return err_set(err, ERR_NETWORK_UNAVAILABLE, "this jailer was started without an egress proxy");
    if (!helper_link_expected(&j->egress))
        return err_set(err, ERR_NETWORK_UNAVAILABLE, "the egress proxy does not run; look for the reason in its log");
    return 0;
}

void egress_relay_add(struct jailed_sandbox *sandbox, const struct egress_net *listeners)
{
    sandbox->egress = *listeners;
    if (listeners->n)
        sandbox->created.egress_carrier = listeners->n == EGRESS_NET_SOCKETS ? EGRESS_CARRIER_TPROXY
                                                                             : EGRESS_CARRIER_PROXY;
    egress_relay_announce(sandbox);
}

void egress_relay_remove(struct jailed_sandbox *sandbox)
{
    static const struct egress_net none;
    struct egress_id m;
    PAYLOAD(payload);

    if (!sandbox->egress.n)
        return;
    memcpy(m.id, sandbox->id, sizeof(m.id));
    egress_relay_send(sandbox, FRAME_E_UNLISTEN, payload, egress_id_encode(&m, payload, NULL), &none);
    egress_net_close(&sandbox->egress);
}
