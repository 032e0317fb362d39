/* The URI of a resource, from an MCP client.
 *
 * Checked in addition to memory errors: an accepted URI names an execution or a file, never both; a
 * path is absolute; the URI that is written for a file names the same file. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "server/mcp/resource_uri.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = str_dup_n((const char *)data, strnlen((const char *)data, size));
    struct resource_uri one, two;
    auto_buf out = { 0 };

    if (!resource_uri_parse(text, &one))
        return 0;
    must((one.sandbox[0] != '\0') != (one.execution[0] != '\0'));
    must(one.execution[0] ? !one.path[0] : one.path[0] == '/');
    if (one.execution[0])
        return 0;
    resource_uri_write_file(&out, one.sandbox, one.path);
    if (one.path[1])
        must(resource_uri_parse(out.data, &two) && str_eq(two.path, one.path) && str_eq(two.sandbox, one.sandbox));
    return 0;
}
