/* Bytes of any client, as the first parser sees them. The first byte chooses the pieces into
 * which they are cut.
 *
 * Checked in addition to memory errors: the pieces make no difference to what is found and to
 * what is refused with which message; no more bytes are passed on than arrived; and complete
 * requests that are passed on have no line that ends in a bare LF. */
#include "tests/support/http_limits.h"
#include "core/base/mem.h"
#include "core/base/str.h"
#include "server/http/request_scanner.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

struct outcome {
    struct err err;
    uint64_t ended;
    enum request_scanner_state state;
    size_t let;
};

static struct outcome scan(const char *data, size_t n, size_t piece)
{
    static struct http_limits lim;
    struct outcome out = { 0 };
    struct request_scanner f;
    int ret = 0;

    lim = http_limits_for_tests();
    lim.line_max = 200;
    lim.head_max = 1000;
    request_scanner_init(&f, &lim);
    for (size_t at = 0; at < n && ret == 0; at += piece) {
        size_t len = min_size(piece, n - at), got = 0;

        ret = request_scanner_scan(&f, data + at, len, &got, &out.err);
        must(got <= len);
        out.let += got;
    }
    must(ret == 0 || (out.err.msg[0] && f.state == SCAN_REFUSED));
    out.ended = f.requests_ended;
    out.state = f.state;
    request_scanner_done(&f);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    const char *data = (const char *)bytes + 1;

    if (size < 2)
        return 0;
    struct outcome whole = scan(data, size - 1, size - 1), cut = scan(data, size - 1, bytes[0] % 64 + 1u);
    must(whole.err.id == cut.err.id && str_eq(whole.err.msg, cut.err.msg) && whole.ended == cut.ended &&
         whole.state == cut.state && cut.let >= whole.let);
    const char *lf = memchr(data, '\n', size - 1);
    must(whole.ended == 0 || (lf && lf > data && lf[-1] == '\r'));
    return 0;
}
