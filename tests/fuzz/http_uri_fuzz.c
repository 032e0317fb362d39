/* The target of a request: from any client to the server.
 *
 * Checked in addition to memory errors: a refusal has a message; no decoded segment climbs, is
 * empty or holds a NUL; a match belongs to the path; the rest of a path is its segments; and a
 * path that is encoded again has the same meaning. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "server/http/route.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void nothing(struct http_req *req UNUSED, void *ctx UNUSED)
{
}

static const struct http_route routes[] = {
    { "GET", "/", nothing },
    { "GET", "/v1/sandboxes", nothing },
    { "POST", "/v1/sandboxes", nothing },
    { "GET", "/v1/sandboxes/{id}", nothing },
    { "GET", "/v1/sandboxes/{id}/files/{path*}", nothing },
    { "POST", "/v1/sandboxes/{id}/pause", nothing },
    { 0 },
};
static const struct http_route *const tables[] = { routes, NULL };

static void check_segment(const char *seg)
{
    for (const char *p = seg;;) {
        size_t n = strcspn(p, "/");

        must(n > 0 && !(n == 1 && p[0] == '.') && !(n == 2 && memcmp(p, "..", 2) == 0));
        if (!p[n])
            return;
        p += n + 1;
    }
}

static void check_again(const struct uri *u)
{
    auto_buf text = { 0 };
    struct uri again;
    struct err err = { 0 };

    for (size_t i = 0; i < u->nsegs; i++) {
        buf_adds(&text, "/");
        for (const char *p = u->seg[i]; *p; p++)
            buf_addf(&text, "%%%02x", (unsigned char)*p);
    }
    if (u->trailing_slash)
        buf_adds(&text, "/");
    auto_free char *mem = mem_alloc(text.len + 2);
    must(uri_parse(text.data, mem, &again, &err) == 0 && again.nsegs == u->nsegs &&
         again.trailing_slash == u->trailing_slash);
    for (size_t i = 0; i < u->nsegs; i++)
        must(str_eq(u->seg[i], again.seg[i]));
}

static void check_match(const struct uri *u, size_t size)
{
    struct router *r = router_new((const struct http_tables[]){ { tables }, { 0 } });
    struct route_match m;

    router_find(r, "GET", u, &m);
    must(!m.route || m.allowed_methods);
    for (size_t i = 0; i < m.nparams; i++) {
        auto_free char *rest = mem_alloc(size + 2);

        must(m.param[i].rest ? m.param[i].seg <= u->nsegs : m.param[i].seg < u->nsegs);
        if (!m.param[i].rest)
            continue;
        route_join_rest(u, m.param[i].seg, rest);
        must(rest[0] != '/' && !strstr(rest, "//"));
    }
    router_nearest_pattern(r, u);
    router_free(r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *target = str_dup_n((const char *)data, size);
    auto_free char *mem = mem_alloc(strlen(target) + 2);
    struct uri u;
    struct err err = { 0 };

    if (uri_parse(target, mem, &u, &err) < 0) {
        must(err.id && err.msg[0]);
        return 0;
    }
    must(target[0] == '/');
    for (size_t i = 0; i < u.nsegs; i++)
        check_segment(u.seg[i]);
    for (size_t i = 0; i < u.nquery; i++)
        must(uri_query(&u, u.query[i].name) == u.query[i].value);
    check_again(&u);
    check_match(&u, size);
    return 0;
}
