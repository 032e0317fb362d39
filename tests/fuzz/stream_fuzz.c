/* A message of a WebSocket client, parsed by every reader of a part of it.
 *
 * Checked in addition to memory errors: an accepted request to execute names exactly one
 * program, a terminal has a size, a signal is valid, and accepted base64 is the base64 of the
 * decoded bytes. */
#include "server/api/api_internal.h"

#include "core/base/str.h"
#include "core/base/text.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void read_launch(json_t *body)
{
    static struct api api;
    struct execution_request l = { .body = json_incref(body) };
    const struct execution_spec *s = &l.spec;

    if (execution_request_read(&l, &api, NULL) == 0) {
        must(!s->code != !s->argv && (!s->argv || s->argv[0][0]));
        must(!s->tty || (s->rows > 0 && s->cols > 0 && s->input_open && !s->input));
        must(!s->input || !s->input_open);
    }
    execution_request_done(&l);
}

static void read_bytes(const json_t *body)
{
    const char *text = json_string_value(json_object_get(body, "base64"));
    auto_buf bytes = { 0 }, again = { 0 };

    if (!text || !text_from_base64(&bytes, text, strlen(text)))
        return;
    text_base64(&again, bytes.data ? bytes.data : "", bytes.len);
    must(str_eq(again.data, text));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_json *body = NULL;
    auto_buf out = { 0 };
    struct jsonw w;
    uint16_t rows = 1, cols = 1;
    int signo = 0;

    jsonw_init(&w, &out, 0); /* the other direction: any bytes are a piece of output */
    jsonw_object(&w);
    must(size == 0 || output_chunk_write_json(&w, "content", (const char *)data, size, true) > 0);
    jsonw_end_object(&w);
    if (json_input_parse((const char *)data, size, &body, NULL) < 0)
        return 0;
    read_launch(body);
    read_bytes(body);
    must(execution_request_read_tty_size(body, &rows, &cols, NULL) < 0 || (rows > 0 && cols > 0));
    must(terminal_read_signal(body, &signo, NULL) < 0 || (signo >= 1 && signo <= 64));
    return 0;
}
