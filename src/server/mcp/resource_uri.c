/* A path is decoded once, and is passed to the sandbox as it is: its runtime resolves it there, so
 * a path with `..` reaches nothing outside of the sandbox. */
#include "server/mcp/resource_uri.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"

static int resource_uri_hex(char d)
{
    return d >= '0' && d <= '9'   ? d - '0'
           : d >= 'a' && d <= 'f' ? d - 'a' + 10
           : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                  : -1;
}

/* Decodes once. A NUL is refused. */
static bool resource_uri_decode(const char *from, char *to, size_t cap)
{
    size_t n = 0;

    for (; *from; from++) {
        char byte = *from;

        if (byte == '%') {
            int high = resource_uri_hex(from[1]), low = high < 0 ? -1 : resource_uri_hex(from[2]);

            if (low < 0 || high * 16 + low == 0)
                return false;
            byte = (char)(high * 16 + low);
            from += 2;
        }
        if (n + 1 >= cap)
            return false;
        to[n++] = byte;
    }
    to[n] = '\0';
    return true;
}

bool resource_uri_parse(const char *uri, struct resource_uri *ret)
{
    const char *p = uri;

    *ret = (struct resource_uri){ 0 };
    if (str_eat(&p, "cove://executions/")) {
        if (strlen(p) != ID_LEN + strlen("/receipt") || !str_eq(p + ID_LEN, "/receipt"))
            return false;
        memcpy(ret->execution, p, ID_LEN);
        return id_valid(ret->execution, "ex");
    }
    if (!str_eat(&p, "cove://sandboxes/") || strlen(p) < ID_LEN)
        return false;
    memcpy(ret->sandbox, p, ID_LEN);
    p += ID_LEN;
    ret->path[0] = '/';
    return id_valid(ret->sandbox, "sb") && str_eat(&p, "/files/") && *p &&
           resource_uri_decode(p, ret->path + 1, sizeof(ret->path) - 1);
}

void resource_uri_write_file(struct buf *out, const char *sandbox, const char *path)
{
    buf_addf(out, "cove://sandboxes/%s/files", sandbox);
    while (*path) {
        size_t n = strcspn(path + 1, "/");
        auto_free char *segment = str_dup_n(path + 1, n);

        buf_adds(out, "/");
        text_percent_encode(out, segment);
        path += n + 1;
    }
}
