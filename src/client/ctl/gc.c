/* cove gc: makes the server remove expired records and files, and prints their numbers. */
#include "client/ctl/ctl_internal.h"

#include "core/base/str.h"

#include <stdio.h>

static void ctl_gc_add_row(struct ctl_table *t, const json_t *answer, const char *what, const char *count,
                           const char *bytes)
{
    char n[24], size[24];

    snprintf(n, sizeof(n), "%" PRIu64, ctl_field_number(answer, count));
    snprintf(size, sizeof(size), "%" PRIu64, bytes ? ctl_field_number(answer, bytes) : 0);
    ctl_table_row(t, what, n, bytes ? size : "-");
}

int ctl_gc(struct ctl *c, struct err *err)
{
    bool dry = args_find(&c->args, OPT_DRY_RUN) != NULL;
    struct ctl_table table = { 0 };
    AUTO_JSON *answer = NULL;

    if (ctl_require_args(c, 0, 0, "gc [--dry-run]", err) < 0)
        return -1;
    if (client_json(c->client, "POST", "/v1/maintenance/gc", dry ? "{\"dryRun\":true}" : "{}", &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    ctl_table_row(&table, dry ? "would be removed" : "removed", "count", "output bytes");
    ctl_gc_add_row(&table, answer, "executions", "executions", "outputBytes");
    ctl_gc_add_row(&table, answer, "sandboxes", "sandboxes", NULL);
    ctl_gc_add_row(&table, answer, "events", "events", NULL);
    ctl_gc_add_row(&table, answer, "idempotency keys", "idempotencyKeys", NULL);
    ctl_gc_add_row(&table, answer, "usage rows", "usageRows", NULL);
    ctl_gc_add_row(&table, answer, "scripts", "scripts", NULL);
    ctl_gc_add_row(&table, answer, "orphaned output files", "strayFiles", "strayBytes");
    return ctl_table_print(&table);
}
