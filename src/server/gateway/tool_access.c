#include "server/gateway/tool_access.h"

#include "server/gateway/audit_trail.h"
#include "server/gateway/gateway_internal.h"

#include <stdio.h>

uint32_t tool_access_scopes(unsigned rights)
{
    static const struct {
        enum tool_right right;
        uint32_t scope;
    } map[] = {
        { TOOL_EXECUTES, SCOPE_BIT(EXECUTIONS) },
        { TOOL_READS_FILES, SCOPE_BIT(FILES_READ) },
        { TOOL_WRITES_FILES, SCOPE_BIT(FILES) },
        { TOOL_READS_SANDBOXES, SCOPE_BIT(SANDBOXES_READ) },
        { TOOL_MAKES_SANDBOXES, SCOPE_BIT(SANDBOXES_WRITE) },
        { TOOL_READS_EXECUTIONS, SCOPE_BIT(EXECUTIONS_READ) },
    };
    uint32_t scopes = 0;

    for (size_t i = 0; i < ARRAY_LEN(map); i++)
        if (rights & map[i].right)
            scopes |= map[i].scope;
    return scopes;
}

int tool_access_require(struct http_req *req, const struct tool *tool, struct err *err)
{
    struct gateway *gateway = gateway_of_request(req);
    const struct principal *p = gateway_principal(req);
    struct ratelimit_answer rate = { 0 };
    char seconds[24];

    if (principal_require(p, tool_access_scopes(tool->rights), err) < 0)
        return -1;
    if (!(tool->rights & TOOL_EXECUTES) ||
        auth_rate_take(gateway->settings.auth, p, AUTH_CLASS_EXECUTE, ev_now(gateway->settings.ev), &rate))
        return 0;
    snprintf(seconds, sizeof(seconds), "%" PRIu64, max_u64((rate.retry_ns + NS_PER_S - 1) / NS_PER_S, 1));
    http_set_header(req, "Retry-After", seconds);
    return err_set(err, ERR_RATE_LIMITED,
                   "too many executions started with this key; retry after the time in Retry-After");
}

void tool_access_record(const struct http_req *req, const struct tool *tool, const json_t *arguments)
{
    auto_free char *text = json_dumps(arguments, JSON_COMPACT);

    audit_trail_add_target(req, "tool", tool->name);
    if (text)
        audit_trail_add_content(req, "arguments", text, strlen(text));
}
