/* cove gc: has the server forget what is older than it keeps things, and says what that was. */
#include "ctl/inside.h"

#include "base/str.h"

#include <stdio.h>

#define AUTO_JSON __attribute__((cleanup(json_decrefp))) json_t

static void row(struct ctl_table *t, const json_t *answer, const char *what, const char *count, const char *bytes)
{
    char n[24], size[24];

    snprintf(n, sizeof(n), "%" PRIu64, ctl_number(answer, count));
    snprintf(size, sizeof(size), "%" PRIu64, bytes ? ctl_number(answer, bytes) : 0);
    ctl_row(t, what, n, bytes ? size : "-");
}

int ctl_gc(struct ctl *c, struct err *err)
{
    bool dry = args_find(&c->args, OPT_DRY_RUN) != NULL;
    struct ctl_table table = { 0 };
    AUTO_JSON *answer = NULL;

    if (ctl_words(c, 0, 0, "gc [--dry-run]", err) < 0)
        return -1;
    if (client_json(c->client, "POST", "/v1/gc", dry ? "{\"dryRun\":true}" : "{}", &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    ctl_row(&table, dry ? "would be removed" : "removed", "count", "bytes of output");
    row(&table, answer, "executions", "executions", "outputBytes");
    row(&table, answer, "sandboxes", "sandboxes", NULL);
    row(&table, answer, "events", "events", NULL);
    row(&table, answer, "idempotency keys", "idempotencyKeys", NULL);
    row(&table, answer, "rows of usage", "usageRows", NULL);
    row(&table, answer, "output files of nobody", "strayFiles", "strayBytes");
    return ctl_print_table(&table);
}
