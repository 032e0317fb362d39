/* Text is printed as it is but for control characters; data that is not text is written to a
 * file, or named in one line. */
#include "client/ctl/mcp_print.h"

#include "core/base/str.h"
#include "client/ctl/ctl_internal.h"
#include "client/ctl/show.h"
#include "remote/mcp/mcp_tool.h"

#include <stdio.h>

#define TEXT_MAX (8u * 1024u * 1024u)

static void mcp_print_text(const char *text)
{
    auto_free char *clean = mcp_clean_text(text, TEXT_MAX);

    fputs(clean, stdout);
    if (*clean && clean[strlen(clean) - 1] != '\n')
        fputc('\n', stdout);
}

static int mcp_print_picture(struct ctl_show *show, const char *type, const char *base64, struct err *err)
{
    AUTO_JSON *data = json_object();

    json_object_set_new(data, type, json_string(base64));
    fflush(stdout);
    if (ctl_show_data(show, data))
        return 0;
    *err = show->err;
    return -1;
}

static int mcp_print_block(struct ctl_show *show, const json_t *block, struct err *err)
{
    const char *type = ctl_field_text(block, "type");
    const json_t *resource = json_object_get(block, "resource");

    if (str_eq(type, "text")) {
        mcp_print_text(ctl_field_text(block, "text"));
    } else if (str_eq(type, "image") && str_starts(ctl_field_text(block, "mimeType"), "image/")) {
        return mcp_print_picture(show, ctl_field_text(block, "mimeType"), ctl_field_text(block, "data"), err);
    } else if (resource && json_object_get(resource, "text")) {
        mcp_print_text(ctl_field_text(resource, "text"));
    } else {
        const char *uri = ctl_field_text(resource ? resource : block, "uri");

        ctl_printf("[%.40s%s%.200s]", type, *uri ? " " : "", uri);
    }
    return 0;
}

static int mcp_print_end(const struct ctl_show *show, struct err *err)
{
    ctl_show_end(show);
    return fflush(stdout) == 0 ? 0 : err_sys(err, ERR_SYS, "standard output");
}

int mcp_print_blocks(const json_t *blocks, const char *save, bool quiet, struct err *err)
{
    struct ctl_show show = { .quiet = quiet, .save = save, .name = "image" };
    const json_t *block;
    size_t i;

    json_array_foreach(blocks, i, block) if (mcp_print_block(&show, block, err) < 0) return -1;
    return mcp_print_end(&show, err);
}

int mcp_print_contents(const json_t *contents, const char *save, bool quiet, struct err *err)
{
    struct ctl_show show = { .quiet = quiet, .save = save, .name = "resource" };
    const json_t *r;
    size_t i;

    json_array_foreach(contents, i, r)
    {
        const char *type = ctl_field_text(r, "mimeType");

        if (json_object_get(r, "text")) {
            mcp_print_text(ctl_field_text(r, "text"));
        } else if (!str_starts(type, "image/") && !str_eq(type, "application/pdf")) {
            ctl_printf("[%.60s %.200s]", *type ? type : "data", ctl_field_text(r, "uri"));
        } else if (mcp_print_picture(&show, type, ctl_field_text(r, "blob"), err) < 0) {
            return -1;
        }
    }
    return mcp_print_end(&show, err);
}

int mcp_print_resource_list(const json_t *resources)
{
    struct ctl_table table = { 0 };
    const json_t *r;
    size_t i;

    ctl_table_row(&table, "uri", "type", "name");
    json_array_foreach(resources, i, r)
    {
        const char *type = ctl_field_text(r, "mimeType");

        ctl_table_row(&table, ctl_field_text(r, "uri"), *type ? type : "-", ctl_field_text(r, "name"));
    }
    return ctl_table_print(&table);
}
