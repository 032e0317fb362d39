#include "host/egress/egress_proxy.h"

#include "core/base/mem.h"
#include "host/egress/egress_sandbox.h"
#include "host/egress/tls_upstream.h"

#include <sys/resource.h>

#define DESCRIPTORS_RESERVED 64u
#define DESCRIPTORS_PER_CONNECTION 2u

/* A quarter of the descriptors is for listeners. */
static size_t egress_proxy_connections_max(void)
{
    struct rlimit l = { .rlim_cur = 1024 };

    (void)getrlimit(RLIMIT_NOFILE, &l);
    if (l.rlim_cur > 1000000)
        l.rlim_cur = 1000000;
    if (l.rlim_cur < 2 * DESCRIPTORS_RESERVED)
        return DESCRIPTORS_RESERVED / DESCRIPTORS_PER_CONNECTION;
    return (l.rlim_cur - DESCRIPTORS_RESERVED) * 3 / 4 / DESCRIPTORS_PER_CONNECTION;
}

int egress_proxy_init(struct egress_proxy *p, struct ev *ev, const struct egress_settings *settings, struct err *err)
{
    *p = (struct egress_proxy){ .ev = ev, .settings = settings };
    shares_init(&p->shares, egress_proxy_connections_max(), settings->tenant_connections);
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
