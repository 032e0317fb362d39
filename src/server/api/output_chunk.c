/* Output of executions: its files, and a chunk of it as JSON. Output is sent as text if possible: a
 * character that is split at the end of a chunk waits for its remaining bytes. Bytes that are not
 * UTF-8 are sent as base64. */
#include "server/api/api_internal.h"

#include "core/base/str.h"
#include "core/base/text.h"

#include <errno.h>

int output_chunk_open_file(struct api *api, const char *execution, int channel, int *ret, struct err *err)
{
    int fd = manager_open_output(api->settings.manager, execution, channel);

    if (fd >= 0) {
        *ret = fd;
        return 1;
    }
    if (errno == ENOENT)
        return 0;
    if (errno == EMFILE || errno == ENFILE)
        return err_set(err, ERR_DESCRIPTORS,
                       "cannot open the output of %s: the server has too many open files; try again later", execution);
    return err_sys(err, ERR_SYS, "opening the output of %s", execution);
}

bool output_chunk_is_partial_utf8(const char *data, size_t n)
{
    uint8_t first = n ? (uint8_t)data[0] : 0;
    size_t need = first >= 0xf0 && first <= 0xf4  ? 4
                  : first >= 0xe0 && first < 0xf0 ? 3
                  : first >= 0xc2 && first < 0xe0 ? 2
                                                  : 0;

    for (size_t i = 1; i < n; i++)
        if (((uint8_t)data[i] & 0xc0) != 0x80)
            return false;
    return n < need;
}

/* Length of the part that can be sent as text: all bytes, all except a split last character, or
 * 0. */
static size_t output_chunk_text_prefix(const char *data, size_t n, bool last)
{
    size_t at = 0;
    uint32_t c;

    while (at < n) {
        size_t len = (data[at] & 0x80) ? str_utf8(data + at, n - at, &c) : 1;

        if (len == 0)
            break;
        at += len;
    }
    if (at == n || (!last && output_chunk_is_partial_utf8(data + at, n - at)))
        return at;
    return 0;
}

size_t output_chunk_write_json(struct jsonw *w, const char *text_key, const char *data, size_t n, bool last)
{
    auto_buf coded = { 0 };
    size_t text = output_chunk_text_prefix(data, n, last);

    if (text > 0) {
        jsonw_key(w, text_key);
        jsonw_strn(w, data, text);
        return text;
    }
    text_base64(&coded, data, n);
    jsonw_kstr(w, "base64", coded.data);
    return n;
}
