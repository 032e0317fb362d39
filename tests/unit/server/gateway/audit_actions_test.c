#include "tests/unit/test.h"

#include "server/api/api.h"
#include "server/gateway/gateway_internal.h"
#include "core/base/str.h"

static const struct http_route *const *tables = api_tables;

static void each(void (*fn)(const struct http_route *r, const struct audit_action *a))
{
    for (const struct http_route *const *t = tables; *t; t++)
        for (const struct http_route *r = *t; r->pattern; r++) {
            struct audit_action a;

            audit_action_of_route(r, &a);
            fn(r, &a);
        }
}

static void well_named(const struct http_route *r, const struct audit_action *a)
{
    const char *dot = strchr(a->name, '.');
    size_t n = strlen(a->name);

    if (!dot || dot == a->name || !dot[1] || strspn(a->name, "abcdefghijklmnopqrstuvwxyz0123456789_.") != n)
        fail_msg("%s %s is '%s'", r->method, r->pattern, a->name);
}

static char seen[200][64];
static size_t nseen;

static void unlike(const struct http_route *r, const struct audit_action *a)
{
    if (!a->is_change)
        return;
    for (size_t i = 0; i < nseen; i++)
        if (str_eq(seen[i], a->name))
            fail_msg("%s %s has the action '%s', like another route", r->method, r->pattern, a->name);
    assert_true(nseen < ARRAY_LEN(seen));
    assert_true(str_copy(seen[nseen++], sizeof(seen[0]), a->name));
}

static void recorded_if_it_changes(const struct http_route *r, const struct audit_action *a)
{
    if (str_eq(r->pattern, "/v1/calculate")) { /* computes, and changes nothing */
        assert_false(a->record_success || a->is_change);
        return;
    }
    if (!str_eq(r->method, "GET") && (!a->record_success || !a->is_change))
        fail_msg("%s %s is not recorded", r->method, r->pattern);
}

TEST(AL01_every_route_has_an_action_and_every_change_is_recorded)
{
    each(well_named);
    each(recorded_if_it_changes);
}

TEST(no_two_changing_routes_share_an_action)
{
    nseen = 0;
    each(unlike);
    assert_true(nseen > 10);
}

TEST(action_names_follow_from_method_and_path)
{
    static const struct {
        const char *method, *pattern, *name;
        bool relief;
    } cases[] = {
        { "POST", "/v1/sandboxes", "sandbox.create", false },
        { "DELETE", "/v1/sandboxes/{sandboxId}", "sandbox.delete", true },
        { "POST", "/v1/sandboxes/{sandboxId}/pause", "sandbox.pause", false },
        { "POST", "/v1/sandboxes/{sandboxId}/executions", "execution.create", false },
        { "POST", "/v1/sandboxes/{sandboxId}/executions/{executionId}/cancel", "execution.cancel", true },
        { "PUT", "/v1/sandboxes/{sandboxId}/files", "file.write", false },
        { "POST", "/v1/keys/{keyId}/rotate", "key.rotate", false },
        { "DELETE", "/v1/keys/{keyId}", "key.revoke", true },
        { "PUT", "/v1/templates/{template}", "template.put", false },
        { "POST", "/v1/maintenance/gc", "server.gc", true },
        { "GET", "/v1/policies", "policy.list", false },
        { "GET", "/", "server.list", false },
        { "POST", "/v1/calculate", "calculation.run", false },
        { "PATCH", "/v1/tenants/{tenant}/users/{userId}", "user.update", false },
    };

    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct http_route r = { .method = cases[i].method, .pattern = cases[i].pattern };
        struct audit_action a;

        audit_action_of_route(&r, &a);
        assert_string_equal(a.name, cases[i].name);
        assert_int_equal(a.frees_resources, cases[i].relief);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(AL01_every_route_has_an_action_and_every_change_is_recorded),
        RUN(no_two_changing_routes_share_an_action),
        RUN(action_names_follow_from_method_and_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
