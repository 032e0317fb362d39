#include "host/egress/egress_proxy.h"

#include "core/base/mem.h"
#include "host/egress/egress_sandbox.h"
#include "host/egress/tls_upstream.h"

#include <sys/resource.h>

#define DESCRIPTORS_RESERVED 64u
#define DESCRIPTORS_PER_CONNECTION 3u /* the client's, and two attempts to connect */

static size_t egress_proxy_descriptors_max(void)
{
    struct rlimit l = { .rlim_cur = 1024 };

    (void)getrlimit(RLIMIT_NOFILE, &l);
    return max_u64(min_u64(l.rlim_cur, 1000000), 2 * DESCRIPTORS_RESERVED);
}

void egress_proxy_count_listeners(struct egress_proxy *p, int change)
{
    size_t taken = DESCRIPTORS_RESERVED;

    p->nlisteners = (size_t)((ssize_t)p->nlisteners + change);
    taken += p->nlisteners;
    p->shares.connections_max = (p->descriptors_max - min_size(taken, p->descriptors_max)) / DESCRIPTORS_PER_CONNECTION;
}

int egress_proxy_init(struct egress_proxy *p, struct ev *ev, const struct egress_settings *settings, struct err *err)
{
    *p = (struct egress_proxy){ .ev = ev, .settings = settings };
    p->descriptors_max = egress_proxy_descriptors_max();
    shares_init(&p->shares, 0, settings->tenant_connections);
    egress_proxy_count_listeners(p, 0);
    if (tls_authorities_new(settings->ca_file, &p->authorities, err) < 0)
        return -1;
    if (upstream_init(&p->upstream, ev, &settings->upstream, err) < 0) {
        tls_authorities_free(p->authorities);
        return -1;
    }
    p->relays = (struct relay_shared){ .ev = ev, .shares = &p->shares, .scratch = mem_alloc(RELAY_BUFFER) };
    return 0;
}

void egress_proxy_done(struct egress_proxy *p)
{
    egress_sandboxes_free(p);
    upstream_done(&p->upstream);
    tls_authorities_free(p->authorities);
    shares_done(&p->shares);
    free(p->relays.scratch);
}
