#include "tests/unit/test.h"

#include "core/base/str.h"
#include "server/http/route.h"

static void nothing(struct http_req *req UNUSED, void *ctx UNUSED)
{
}

static const struct http_route first[] = {
    { "GET", "/", nothing },
    { "GET", "/v1/sandboxes", nothing },
    { "POST", "/v1/sandboxes", nothing },
    { "GET", "/v1/sandboxes/{id}", nothing },
    { "DELETE", "/v1/sandboxes/{id}", nothing },
    { "POST", "/v1/sandboxes/{id}/pause", nothing },
    { "POST", "/v1/gc", nothing },
    { 0 },
};
static const struct http_route second[] = {
    { "GET", "/v1/sandboxes/{id}/files/{path*}", nothing },
    { "GET", "/v1/sandboxes/{id}/files/special", nothing },
    { "GET", "/v1/sandboxes/{id}/{what}/special", nothing },
    { "PUT", "/v1/sandboxes/mine", nothing },
    { "HEAD", "/own", nothing },
    { "GET", "/own", nothing },
    { "GET", "/slash/", nothing },
    { 0 },
};
static const struct http_route *const tables[] = { first, second, NULL };

static char mem[1024];

static void find(const char *method, const char *target, struct uri *u, struct route_match *m)
{
    struct router *r = router_new((const struct http_tables[]){ { tables }, { 0 } });
    struct err err = { 0 };

    if (uri_parse(target, mem, u, &err) < 0)
        fail_msg("%s: %s", target, err.msg);
    router_find(r, method, u, m);
    router_free(r);
}

TEST(the_most_literal_row_of_the_method_takes_precedence)
{
    static const struct {
        const char *method, *target, *pattern;
    } cases[] = {
        { "GET", "/", "/" },
        { "GET", "/v1/sandboxes", "/v1/sandboxes" },
        { "GET", "/v1/sandboxes/", NULL },
        { "GET", "/v1/sandboxes/x", "/v1/sandboxes/{id}" },
        { "GET", "/v1/sandboxes/mine", "/v1/sandboxes/{id}" }, /* the literal row is for PUT */
        { "PUT", "/v1/sandboxes/mine", "/v1/sandboxes/mine" },
        { "PUT", "/v1/sandboxes/x", NULL },
        { "GET", "/v1/sandboxes/x/files", "/v1/sandboxes/{id}/files/{path*}" },
        { "GET", "/v1/sandboxes/x/files/", "/v1/sandboxes/{id}/files/{path*}" },
        { "GET", "/v1/sandboxes/x/files/a/b", "/v1/sandboxes/{id}/files/{path*}" },
        { "GET", "/v1/sandboxes/x/files/special", "/v1/sandboxes/{id}/files/special" },
        { "GET", "/v1/sandboxes/x/other/special", "/v1/sandboxes/{id}/{what}/special" },
        { "HEAD", "/v1/sandboxes", "/v1/sandboxes" },
        { "HEAD", "/own", "/own" },
        { "GET", "/slash/", "/slash/" },
        { "GET", "/slash", NULL },
        { "GET", "/V1/sandboxes", NULL },
        { "GET", "/v1/sandbox", NULL },
        { "GET", "/v1/sandboxesx", NULL },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct route_match m;
        struct uri u;

        find(cases[i].method, cases[i].target, &u, &m);
        if (cases[i].pattern ? !m.route || !str_eq(m.route->pattern, cases[i].pattern) : m.route != NULL)
            fail_msg("%s %s found %s", cases[i].method, cases[i].target, m.route ? m.route->pattern : "nothing");
    }
}

TEST(an_explicit_head_row_takes_precedence_over_get)
{
    struct route_match m;
    struct uri u;

    find("HEAD", "/own", &u, &m);
    assert_string_equal(m.route->method, "HEAD");
}

TEST(parameters_are_segments_and_the_rest)
{
    struct route_match m;
    struct uri u;
    char rest[1024];

    find("GET", "/v1/sandboxes/a%2Fb/files/x/y%20z/", &u, &m);
    assert_int_equal(m.nparams, 2);
    assert_int_equal(strncmp(m.param[0].name, "id", m.param[0].len), 0);
    assert_string_equal(u.seg[m.param[0].seg], "a/b");
    assert_true(m.param[1].rest && m.param[1].len == 4);
    route_join_rest(&u, m.param[1].seg, rest);
    assert_string_equal(rest, "x/y z/");
    find("GET", "/v1/sandboxes/a/files", &u, &m);
    route_join_rest(&u, m.param[1].seg, rest);
    assert_string_equal(rest, "");
}

TEST(a_known_path_returns_its_allowed_methods)
{
    static const struct {
        const char *target, *allow;
    } cases[] = {
        { "/v1/sandboxes", "GET, HEAD, POST, OPTIONS" },
        { "/v1/sandboxes/x", "GET, HEAD, DELETE, OPTIONS" },
        { "/v1/sandboxes/mine", "GET, HEAD, PUT, DELETE, OPTIONS" },
        { "/v1/sandboxes/x/pause", "POST, OPTIONS" },
        { "/nothing", "" },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct route_match m;
        struct uri u;
        char allow[64];

        find("PATCH", cases[i].target, &u, &m);
        assert_null(m.route);
        assert_string_equal(route_allow_text(m.allowed_methods, allow), cases[i].allow);
    }
    assert_int_equal(route_method_bit("BREW"), 0);
    assert_int_not_equal(route_method_bit("TRACE"), 0); /* known, but never served */
    assert_int_equal(route_method_bit("get"), 0);
}

TEST(a_mistyped_path_suggests_the_nearest_route)
{
    static const struct {
        const char *target, *near;
    } cases[] = {
        { "/v1/sandboxs", "/v1/sandboxes" },
        { "/v1/sandbox", "/v1/sandboxes" },
        { "/v1/sandboxes/", "/v1/sandboxes" },
        { "/sandboxes", "/v1/sandboxes" },
        { "/sandboxes/x", "/v1/sandboxes/{id}" },
        { "/v1/sandboxes/x/puase", NULL }, /* only POST: trying it would change something */
        { "/slash", "/slash/" },
        { "/something/else", NULL },
        { "/v1/cg", NULL },
        { "/v1/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", NULL },
    };
    struct router *r = router_new((const struct http_tables[]){ { tables }, { 0 } });

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct err err = { 0 };
        struct uri u;

        assert_int_equal(uri_parse(cases[i].target, mem, &u, &err), 0);
        const char *near = router_nearest_pattern(r, &u);
        if (cases[i].near ? !near || !str_eq(near, cases[i].near) : near != NULL)
            fail_msg("%s: %s", cases[i].target, near ? near : "nothing");
    }
    router_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(the_most_literal_row_of_the_method_takes_precedence),
        RUN(an_explicit_head_row_takes_precedence_over_get),
        RUN(parameters_are_segments_and_the_rest),
        RUN(a_known_path_returns_its_allowed_methods),
        RUN(a_mistyped_path_suggests_the_nearest_route),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
