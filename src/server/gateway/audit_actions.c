/* The action of a route in the audit trail: "sandbox.create", "execution.cancel".
 *
 * The name is derived from the row of the route table, so that every new route has one: the noun is
 * the singular of the last collection in the path, the verb is the literal after its {id}, or
 * follows from the method. The table below lists the exceptions. */
#include "server/gateway/gateway_internal.h"

#include "core/base/str.h"

#include <stdio.h>

static const struct {
    const char *method, *pattern, *name;
} audit_action_overrides[] = {
    { "POST", "/v1/execute", "execution.execute" },
    { "POST", "/v1/calculate", "calculation.run" },
    { "POST", "/v1/tools/{tool}", "tool.call" },
    { "POST", "/v1/sandboxes/{sandboxId}/tools/{tool}", "tool.call_in_sandbox" },
    { "POST", "/v1/validate", "code.validate" },
    { "POST", "/v1/maintenance/gc", "server.gc" },
    { "GET", "/v1/maintenance/backup", "server.backup" },
    { "PUT", "/v1/sandboxes/{sandboxId}/files", "file.write" },
    { "DELETE", "/v1/sandboxes/{sandboxId}/files", "file.delete" },
    { "POST", "/v1/sandboxes/{sandboxId}/files/mkdir", "file.mkdir" },
    { "POST", "/v1/sandboxes/{sandboxId}/files/move", "file.move" },
    { "PUT", "/v1/sandboxes/{sandboxId}/files/tar", "file.unpack" },
    { "DELETE", "/v1/keys/{keyId}", "key.revoke" },
    { "POST", "/v1/sandboxes/{sandboxId}/files/sign", "file.sign" },
    { "DELETE", "/v1/tokens", "token.revoke_all" },
    { "GET", "/v1/audit/key", "audit.read_key" },
    { "POST", "/mcp", "mcp.request" },
    { "GET", "/mcp", "mcp.listen" },
    { "DELETE", "/mcp", "mcp_session.delete" },
    { "POST", "/v1/mcp/sessions", "mcp_session.create" },
    { "GET", "/v1/mcp/sessions", "mcp_session.list" },
    { "GET", "/v1/mcp/sessions/{mcpSessionId}", "mcp_session.read" },
    { "DELETE", "/v1/mcp/sessions/{mcpSessionId}", "mcp_session.delete" },
    { "GET", "/v1/sandboxes/{sandboxId}/network/why", "sandbox.network.explain" },
    { "GET", "/v1/pools/{pool}/status", "pool.status" },
    { "GET", "/compat/v1/warmpools/{pool}/status", "warmpool.status" },
};

/* Reads that are recorded like changes: they export records of all tenants. */
static const char *const audit_recorded_reads[] = { "/v1/maintenance/backup" };

/* Changes whose success is not recorded by the route: gateway_authorize_action() names what the
 * body does. */
static const struct {
    const char *method, *pattern;
} audit_named_by_body[] = { { "POST", "/mcp" } };

/* Requests with a body that change nothing: a success is not recorded. */
static const char *const audit_computations[] = { "/v1/calculate" };

static void audit_action_singular(const char *word, size_t n, char *ret, size_t cap)
{
    if (n > 4 && strncmp(word + n - 3, "xes", 3) == 0)
        n -= 2; /* sandboxes */
    else if (n > 4 && strncmp(word + n - 3, "ies", 3) == 0)
        n -= 3;
    else if (n > 2 && word[n - 1] == 's')
        n -= 1;
    snprintf(ret, cap, "%.*s%s", (int)n, word, strncmp(word + n, "ies", 3) == 0 ? "y" : "");
}

static const char *audit_action_verb(const char *method, bool one)
{
    return str_eq(method, "POST")     ? (one ? "run" : "create")
           : str_eq(method, "DELETE") ? "delete"
           : str_eq(method, "PUT")    ? "put"
           : str_eq(method, "PATCH")  ? "update"
           : one                      ? "read"
                                      : "list";
}

static void audit_action_make_name(const struct http_route *r, char *ret, size_t cap)
{
    char noun[32] = "server", verb[32] = "";
    const char *p = r->pattern;
    bool after_id = false;

    (void)str_eat(&p, "/v1");
    while (*p == '/') {
        size_t n = strcspn(++p, "/");

        if (n > 0 && p[0] == '{') {
            after_id = true;
            verb[0] = '\0';
        } else if (n > 0 && after_id && p[n] == '\0' && p[n - 1] != 's') {
            snprintf(verb, sizeof(verb), "%.*s", (int)n, p);
        } else if (n > 0) {
            audit_action_singular(p, n, noun, sizeof(noun));
            after_id = false;
        }
        p += n;
    }
    snprintf(ret, cap, "%s.%s", noun, verb[0] ? verb : audit_action_verb(r->method, after_id));
    for (char *c = ret; *c; c++)
        *c = (char)(*c == '-' ? '_' : *c);
}

static bool audit_action_is_read(const struct http_route *r)
{
    for (size_t i = 0; i < ARRAY_LEN(audit_computations); i++)
        if (str_eq(r->pattern, audit_computations[i]))
            return true;
    return str_eq(r->method, "GET");
}

void audit_action_of_route(const struct http_route *r, struct audit_action *ret)
{
    *ret = (struct audit_action){ .route = r, .is_change = !audit_action_is_read(r) };
    for (size_t i = 0; i < ARRAY_LEN(audit_recorded_reads); i++)
        ret->record_success |= audit_action_is_read(r) && str_eq(r->pattern, audit_recorded_reads[i]);
    ret->record_success |= ret->is_change;
    for (size_t i = 0; i < ARRAY_LEN(audit_named_by_body); i++)
        if (str_eq(r->method, audit_named_by_body[i].method) && str_eq(r->pattern, audit_named_by_body[i].pattern))
            ret->record_success = false;
    ret->frees_resources = str_eq(r->method, "DELETE") || str_ends(r->pattern, "/cancel") ||
                           str_eq(r->pattern, "/v1/maintenance/gc");
    audit_action_make_name(r, ret->name, sizeof(ret->name));
    for (size_t i = 0; i < ARRAY_LEN(audit_action_overrides); i++)
        if (str_eq(audit_action_overrides[i].method, r->method) &&
            str_eq(audit_action_overrides[i].pattern, r->pattern))
            snprintf(ret->name, sizeof(ret->name), "%s", audit_action_overrides[i].name);
}
