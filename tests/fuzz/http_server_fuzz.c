/* Bytes of any client to the server, through a real socket and libmicrohttpd.
 *
 * Checked in addition to memory errors: a handler runs only for a head that stands in the input,
 * line for line, in the form of the standard; the connection ends after the client's end; and no
 * request is left. */
#include "tests/support/http_limits.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "http_host.h"

static const uint8_t *input;
static size_t input_len;

static bool line_ends(const char *p, const char *end)
{
    return end - p >= 2 && p[0] == '\r' && p[1] == '\n';
}

/* From here on only complete lines, none of them folded, up to the empty one. */
static bool is_head(const char *p, const char *end)
{
    for (; p < end; p++) {
        if (line_ends(p, end)) {
            p += 2;
            if (line_ends(p, end))
                return true;
            if (p < end && (*p == ' ' || *p == '\t'))
                return false;
        }
        if (p < end && (*p == '\0' || *p == '\n' || *p == '\r'))
            return false;
    }
    return false;
}

/* The request line must stand in the input, followed by such a head. */
static void check_head(const struct http_req *req)
{
    const char *p = (const char *)input, *end = p + input_len;
    size_t n = strlen(http_path(req));

    for (; (p = memmem(p, (size_t)(end - p), http_path(req), n)); p++)
        if (p > (const char *)input && p[-1] == ' ' && is_head(p, end))
            return;
    abort();
}

static void handle(struct http_req *req, void *ctx UNUSED)
{
    size_t len;
    const char *body = http_body(req, &len);

    check_head(req);
    http_answer(req, 200, "text/plain", body, len);
}

static size_t on_data(void *arg UNUSED, const void *data UNUSED, size_t len)
{
    return len;
}

static void on_end(void *arg)
{
    http_answer_empty(arg, 204);
}

static void on_fail(void *arg, const struct err *err)
{
    http_answer_err(arg, err);
}

static void stream(struct http_req *req, void *ctx UNUSED)
{
    static const struct http_reader reader = { on_data, on_end, on_fail };

    check_head(req);
    http_read_body(req, &reader, req);
}

static const struct http_route routes[] = {
    { "GET", "/a", handle },
    { "GET", "/a/{id}/{rest*}", handle },
    { "POST", "/b", handle, HTTP_BODY_BUFFERED, 1000 },
    { "PUT", "/c", stream, HTTP_BODY_STREAMED },
    { 0 },
};

static void start(void)
{
    static const struct http_route *const tables[] = { routes, NULL };
    struct http_settings set = { .tables = (const struct http_tables[]){ { tables }, { 0 } } };

    set.limits = http_limits_for_tests();
    host_start(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct http_stats st;

    if (!loop)
        start();
    if (size > 60000)
        return 0;
    input = data;
    input_len = size;
    auto_fd int fd = host_connect();
    if (size && send(fd, data, size, MSG_NOSIGNAL) < 0)
        abort();
    shutdown(fd, SHUT_WR);
    int turns = 0;
    do {
        host_turn(fd, &st);
    } while ((st.open > 0 || turns < 2) && ++turns < 2000);
    must(st.open == 0 && st.active == 0);
    return 0;
}
