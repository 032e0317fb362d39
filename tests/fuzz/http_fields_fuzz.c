/* Values of Host, Origin, Range and If-None-Match: from any client to the server. The first byte
 * chooses the field.
 *
 * Checked in addition to memory errors: an accepted host is a literal address, localhost or the
 * listed name; an accepted origin is the listed one or ends in the host; a range lies within the
 * size; a tag that is found stands in the text. */
#include "core/base/str.h"
#include "server/http/origin.h"
#include "server/http/range.h"

#include <strings.h>

static const char *const hosts[] = { "cove.example", NULL };
static const char *const origins[] = { "https://page.example", NULL };

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void try_host(const char *text)
{
    struct origin_host host;
    struct err err = { 0 };

    if (origin_check_host(text, hosts, &err) < 0) {
        must(err.msg[0] != '\0');
        return;
    }
    must(origin_parse_host(text, &host, &err) == 0);
    must(host.literal || str_eq(host.name, "localhost") || str_eq(host.name, "cove.example"));
}

static void try_origin(const char *text)
{
    if (origin_allowed(text, "cove.example:8700", false, origins))
        must(str_eq(text, origins[0]) ||
             (str_starts(text, "http") && strcasecmp(strchr(text, '/'), "//cove.example:8700") == 0));
}

static void try_range(const char *text)
{
    static const uint64_t sizes[] = { 0, 1, 1000, INT64_MAX };

    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        uint64_t from, len;
        enum range_kind kind = range_parse(text, sizes[i], &from, &len);

        must(kind == RANGE_PART ? len > 0 && from < sizes[i] && len <= sizes[i] - from : from == 0 && len == sizes[i]);
    }
}

static void try_tags(const char *text)
{
    if (range_tag_listed(text, "\"a-1\"", false))
        must(strstr(text, "\"a-1\"") || strchr(text, '*'));
    must(!range_tag_listed(text, "\"a-1\"", false) || range_tag_listed(text, "\"a-1\"", true));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const tries[])(const char *) = { try_host, try_origin, try_range, try_tags };

    if (size == 0)
        return 0;
    auto_free char *text = str_dup_n((const char *)data + 1, size - 1);
    tries[data[0] % ARRAY_LEN(tries)](text);
    return 0;
}
