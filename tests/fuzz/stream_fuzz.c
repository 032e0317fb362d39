/* A message of a WebSocket client, parsed by every reader of a part of it.
 *
 * Checked in addition to memory errors: an accepted request to execute names exactly one
 * program, a terminal has a size, a signal is valid, accepted base64 is the base64 of the decoded
 * bytes, and every byte of output is sent once. */
#include "server/api/api_internal.h"
#include "server/api/output_pump.h"

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

static void count_output(void *client, const struct output_piece *piece)
{
    size_t *sent = client;
    auto_buf out = { 0 };
    struct jsonw w;

    must(piece->offset == *sent && piece->len > 0);
    must(!piece->is_text || text_is_utf8(piece->data, piece->len));
    jsonw_init(&w, &out, 0);
    jsonw_object(&w);
    output_piece_write(piece, &w);
    jsonw_end_object(&w);
    *sent += piece->len;
}

/* The other direction: any bytes are output, in two pieces. */
static void send_output(const uint8_t *data, size_t size)
{
    static const struct output_client_ops ops = { .send_output = count_output };
    struct output_pump pump;
    size_t sent = 0;

    output_pump_init(&pump, NULL, &ops, &sent, NULL, NULL);
    output_pump_add(&pump, 1, data, size / 2);
    output_pump_add(&pump, 1, data + size / 2, size - size / 2);
    output_pump_flush(&pump);
    output_pump_done(&pump);
    must(sent == size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_json *body = NULL;
    uint16_t rows = 1, cols = 1;
    int signo = 0;

    send_output(data, size);
    if (json_input_parse((const char *)data, size, &body, NULL) < 0)
        return 0;
    read_launch(body);
    read_bytes(body);
    must(execution_request_read_tty_size(body, &rows, &cols, NULL) < 0 || (rows > 0 && cols > 0));
    must(terminal_read_signal(body, &signo, NULL) < 0 || (signo >= 1 && signo <= 64));
    return 0;
}
