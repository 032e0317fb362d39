/* cove script: ls, show, rm. */
#include "client/ctl/ctl_internal.h"

#include "core/base/clock.h"
#include "core/base/fd.h"
#include "core/base/str.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct ctl_script_listing {
    struct ctl_table table;
    uint64_t now_ms;
    json_t *all;
};

static void ctl_script_add_row(void *arg, const json_t *s)
{
    struct ctl_script_listing *l = arg;
    char used[CTL_AGE], size[32], uses[24];

    json_array_append(l->all, (json_t *)(uintptr_t)s);
    snprintf(uses, sizeof(uses), "%" PRIu64, ctl_field_number(s, "uses"));
    ctl_table_row(&l->table, ctl_field_text(s, "id"), ctl_field_text(s, "language"),
                  str_bytes(ctl_field_number(s, "sizeBytes"), size), uses,
                  ctl_age(ctl_field_text(s, "lastUsedAt"), l->now_ms, used), ctl_field_text(s, "description"));
}

static char *ctl_script_list_path(const struct ctl *c)
{
    static const struct {
        int opt;
        const char *form;
    } filters[] = { { OPT_SEARCH, "search=%s" }, { OPT_RUNTIME, "language=%s" } };
    struct buf path = { 0 };
    const char *before = "?";

    buf_adds(&path, "/v1/scripts");
    for (size_t i = 0; i < ARRAY_LEN(filters); i++) {
        const struct arg *a = args_find(&c->args, filters[i].opt);
        auto_free char *pair = a ? ctl_api_path(filters[i].form, a->value) : NULL;

        if (!pair)
            continue;
        buf_addf(&path, "%s%s", before, pair);
        before = "&";
    }
    return path.data;
}

static int ctl_script_list(struct ctl *c, struct err *err)
{
    struct ctl_script_listing l = { .now_ms = clock_real_ms(), .all = json_array() };
    AUTO_JSON *whole = json_pack("{s:o}", "items", l.all);
    json_t *s;
    size_t i;

    if (ctl_require_args(c, 0, 0, "script ls [FLAGS]", err) < 0)
        return -1;
    auto_free char *path = ctl_script_list_path(c);
    ctl_table_row(&l.table, "id", "language", "size", "uses", "last used", "description");
    if (ctl_for_each_item(c, path, ctl_script_add_row, &l, err) < 0) {
        ctl_table_free(&l.table);
        return -1;
    }
    if (!c->json && !c->quiet)
        return ctl_table_print(&l.table);
    ctl_table_free(&l.table);
    if (c->json)
        return ctl_print_json(whole);
    json_array_foreach(l.all, i, s) ctl_printf("%s", ctl_field_text(s, "id"));
    return 0;
}

/* With -q the code goes to a file or another program, as it is. */
static int ctl_script_write_code(const json_t *s, struct err *err)
{
    const json_t *code = json_object_get(s, "code");

    if (fd_write_all(STDOUT_FILENO, json_string_value(code), json_string_length(code)) < 0)
        return err_sys(err, ERR_SYS, "standard output");
    return 0;
}

static void ctl_script_print_code(const json_t *s)
{
    auto_free char *code = str_dup(ctl_field_text(s, "code"));
    char *rest = code;

    for (char *line; (line = strsep(&rest, "\n")) && (rest || *line);)
        ctl_printf("%s", line);
}

static int ctl_script_show(struct ctl *c, struct err *err)
{
    static const char *const fields[] = { "id",         "digest",          "language",  "description", "createdAt",
                                          "lastUsedAt", "lastExecutionId", "createdBy", NULL };
    AUTO_JSON *answer = NULL;

    if (ctl_require_args(c, 1, 1, "script show ID", err) < 0)
        return -1;
    auto_free char *path = ctl_api_path("/v1/scripts/%s", c->args.rest[0]);
    if (client_json(c->client, "GET", path, NULL, &answer, err) < 0)
        return -1;
    if (c->json)
        return ctl_print_json(answer);
    if (c->quiet)
        return ctl_script_write_code(answer, err);
    for (size_t i = 0; fields[i]; i++)
        if (*ctl_field_text(answer, fields[i]))
            ctl_printf("%-15s %s", fields[i], ctl_field_text(answer, fields[i]));
    ctl_printf("%-15s %" PRIu64, "uses", ctl_field_number(answer, "uses"));
    ctl_printf("%s", "");
    ctl_script_print_code(answer);
    return 0;
}

static int ctl_script_remove(struct ctl *c, struct err *err)
{
    return ctl_remove_each(c, "/v1/scripts/%s", "script rm ID...", err);
}

int ctl_script(struct ctl *c, const char *what, struct err *err)
{
    static const struct ctl_subcommand all[] = {
        { "ls", ctl_script_list }, { "show", ctl_script_show }, { "rm", ctl_script_remove }, { NULL }
    };

    return ctl_run_subcommand(c, all, "script", what, err);
}
