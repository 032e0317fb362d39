/* The result of tools/list from an MCP server of others, and the parameters of a request of a
 * client: two JSON texts, separated by a line feed.
 *
 * Checked in addition to memory errors: the number of headers is bounded; a header has one name,
 * no control character and no byte beyond ASCII; an encoded value is base64 of the parameter. */
#include "client/mcp/mirror.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "core/doc/json_input.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static json_t *json_of(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;

    return json_input_within_limits(text, size, 64, 10000) ? json_loadb(text, size, JSON_ALLOW_NUL, NULL) : NULL;
}

static void check_header(const char *header)
{
    static const char marker[] = "=?base64?";
    const char *colon = strstr(header, ": ");
    auto_buf plain = { 0 };

    must(colon && colon > header);
    for (const char *p = header; *p; p++)
        must(*p >= ' ' && *p <= '~' && (p > colon || *p != ' '));
    const char *value = colon + 2;
    if (str_starts(value, marker)) {
        value += strlen(marker);
        must(str_ends(value, "?="));
        must(text_from_base64(&plain, value, strlen(value) - 2));
    }
}

static void read_calls(const struct mirror *m, const json_t *params)
{
    static const char *const methods[] = { "tools/call", "prompts/get", "resources/read", "a\r\nb" };
    const char *version = mirror_version(params);
    char *headers[MIRROR_HEADERS_MAX];

    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        size_t n = mirror_headers(m, methods[i], params, version ? version : "2026-07-28", headers);

        must(n >= 2 && n <= MIRROR_HEADERS_MAX);
        for (size_t k = 0; k < n; k++) {
            check_header(headers[k]);
            free(headers[k]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *end = size ? memchr(data, '\n', size) : NULL;

    if (!end)
        return 0;
    json_t *list = json_of(data, (size_t)(end - data));
    json_t *params = json_of(end + 1, size - (size_t)(end - data) - 1);
    auto_(mirror) m = mirror_new();
    mirror_learn(m, list);
    mirror_learn(m, list);
    read_calls(m, params);
    json_decref(list);
    json_decref(params);
    return 0;
}
