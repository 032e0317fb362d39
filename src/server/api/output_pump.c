/* Stored output is read from the files that the manager writes, at the offsets of the pump. Joining
 * at the beginning, resuming in the middle and reading an ended execution are therefore the same
 * operation. The watch only reports that more bytes exist, and the execution never waits for a
 * client. */
#include "server/api/output_pump.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "service/stored_output.h"

void output_pump_init(struct output_pump *p, struct manager *m, const struct output_client_ops *ops, void *client,
                      void (*on_progress)(void *arg), void *arg)
{
    *p = (struct output_pump){
        .manager = m, .ops = ops, .client = client, .on_progress = on_progress, .arg = arg, .fd = { -1, -1, -1 }
    };
}

void output_pump_done(struct output_pump *p)
{
    execution_watch_free(p->watch);
    for (int i = 0; i < OUTPUT_CHANNELS; i++)
        fd_close(&p->fd[i]);
    buf_done(&p->split_character[0]);
    buf_done(&p->split_character[1]);
    buf_done(&p->end_json);
}

bool output_pump_has_events(const struct output_pump *p)
{
    return p->channels & OUTPUT_CHANNEL(CONTEXT_EVENTS);
}

/* --- pieces --- */

static bool output_is_split_character(const char *data, size_t n)
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

/* Length of the UTF-8 characters at the beginning. */
static size_t output_text_length(const char *data, size_t n)
{
    size_t at = 0;
    uint32_t c;

    while (at < n) {
        size_t len = (data[at] & 0x80) ? str_utf8(data + at, n - at, &c) : 1;

        if (len == 0)
            break;
        at += len;
    }
    return at;
}

void output_piece_write(const struct output_piece *piece, struct jsonw *w)
{
    auto_buf coded = { 0 };

    jsonw_kstr(w, "stream", piece->channel == 1 ? "stdout" : "stderr");
    jsonw_ku64(w, "offset", piece->offset);
    if (piece->is_text) {
        jsonw_key(w, "data");
        jsonw_strn(w, piece->data, piece->len);
    } else {
        text_base64(&coded, piece->data, piece->len);
        jsonw_kstr(w, "base64", coded.data);
    }
}

/* Sends the bytes, except the start of a character if more bytes follow. Returns how many were
 * sent. */
static size_t output_pump_send(struct output_pump *p, int i, const char *data, size_t n, bool last)
{
    struct output_piece piece = { .channel = i + 1, .offset = p->offset[i], .data = data, .len = n };
    size_t text = p->ops->is_raw ? 0 : output_text_length(data, n);

    if (!p->ops->is_raw && !last && text < n && output_is_split_character(data + text, n - text))
        piece.len = text;
    piece.is_text = text > 0 && text == piece.len;
    p->offset[i] += piece.len;
    if (piece.len > 0)
        p->ops->send_output(p->client, &piece);
    return piece.len;
}

/* --- join --- */

static void output_pump_update_ends(struct output_pump *p)
{
    for (int i = 0; p->watch && i < OUTPUT_CHANNELS; i++)
        p->end[i] = execution_watch_output_bytes(p->watch, i + 1);
}

/* A terminal discards its oldest output. */
static void output_pump_skip_discarded(struct output_pump *p, int i)
{
    if (p->is_terminal && p->watch && i == 0)
        p->offset[0] = max_u64(p->offset[0], execution_watch_first_kept_offset(p->watch));
    else if (p->is_terminal && p->fd[i] >= 0)
        p->offset[i] = output_first_kept_offset(p->fd[i], p->offset[i]);
}

/* The row is only valid during the call, so the end is written now. */
static void output_pump_store_end(struct output_pump *p, const struct store_execution *row)
{
    struct jsonw w;

    jsonw_init(&w, &p->end_json, 0);
    stored_output_write_execution(p->manager, row,
                                  (struct execution_view){ p->ops->is_raw          ? EXECUTION_OUTPUT_NONE
                                                           : p->ops->embeds_output ? EXECUTION_OUTPUT_EMBEDDED
                                                                                   : EXECUTION_OUTPUT_STREAMED,
                                                           p->receipt },
                                  &w);
}

static void output_pump_on_watch(void *arg, const struct store_execution *ended)
{
    struct output_pump *p = arg;

    if (ended) { /* the watch has no sizes any more */
        for (int i = 0; i < OUTPUT_CHANNELS; i++)
            p->end[i] = max_u64(p->end[i], ended->out_bytes[i] - ended->dropped[i]);
        execution_watch_free(take_ptr(&p->watch));
        output_pump_store_end(p, ended);
    }
    p->on_progress(p->arg);
}

static int output_pump_check_offsets(const struct output_pump *p, struct err *err)
{
    static const char *const names[] = { "stdout has", "stderr has", "events have" };

    for (int i = 0; i < OUTPUT_CHANNELS && !p->watch; i++)
        if (p->offset[i] > p->end[i])
            return err_set(err, ERR_HTTP_RANGE, "%s %" PRIu64 " bytes so far, none at offset %" PRIu64, names[i],
                           p->end[i], p->offset[i]);
    return 0;
}

int output_pump_join(struct output_pump *p, const struct output_join *join, const struct store_execution *row,
                     struct err *err)
{
    bool live = row->state == STORE_EXECUTION_STARTING || row->state == STORE_EXECUTION_RUNNING;

    if (!str_eq(row->sandbox, join->sandbox))
        return err_set(err, ERR_MISSING, "there is no such execution in this sandbox");
    if (live && !join->existing_only)
        p->watch = manager_watch_execution(p->manager, join->owner, join->sandbox, row->id, output_pump_on_watch, p);
    if (live && !join->existing_only && !p->watch)
        return err_set(err, ERR_BUSY, "the server has just started and is still recovering its executions; try again");
    memcpy(p->execution, row->id, sizeof(p->execution));
    memcpy(p->offset, join->offset, sizeof(p->offset));
    p->receipt = join->receipt;
    p->is_terminal = row->tty;
    p->channels = join->channels & (row->context[0] ? OUTPUT_ALL_CHANNELS : OUTPUT_CHANNEL(1) | OUTPUT_CHANNEL(2));
    for (int i = 0; i < OUTPUT_CHANNELS; i++) {
        if ((p->channels & OUTPUT_CHANNEL(i + 1)) &&
            stored_output_open(p->manager, p->execution, i + 1, &p->fd[i], &p->end[i], err) < 0)
            return -1;
        if (join->has_tail && i + 1 != CONTEXT_EVENTS)
            p->offset[i] = p->end[i] - min_u64(p->end[i], join->tail_bytes);
        output_pump_skip_discarded(p, i);
    }
    output_pump_update_ends(p);
    if (output_pump_check_offsets(p, err) < 0)
        return -1;
    if (!live)
        output_pump_store_end(p, row);
    return 0;
}

/* --- stored output --- */

/* Returns how many bytes were sent. 0: a character is incomplete, or retention removed the file. */
static size_t output_pump_send_stored(struct output_pump *p, int i)
{
    char data[OUTPUT_PIECE_MAX] __attribute__((uninitialized));

    output_pump_skip_discarded(p, i);
    if (p->offset[i] >= p->end[i])
        return 0;
    size_t want = (size_t)min_u64(p->end[i] - p->offset[i], p->ops->piece_max);
    ssize_t n = pread(p->fd[i], data, want, (off_t)p->offset[i]);
    if (n <= 0)
        return 0;
    return output_pump_send(p, i, data, (size_t)n, !p->watch && p->offset[i] + (uint64_t)n == p->end[i]);
}

static size_t output_pump_send_event(struct output_pump *p, int i)
{
    auto_buf line = { 0 };
    char type[16];

    if (!stored_output_read_event(p->fd[i], p->offset[i], &line, type))
        return 0;
    p->offset[i] += line.len + 1;
    p->ops->send_event(p->client, type, &line);
    return line.len + 1;
}

enum output_pump_result output_pump_run(struct output_pump *p, struct err *err)
{
    size_t sent = 0;

    output_pump_update_ends(p);
    for (int i = 0; i < OUTPUT_CHANNELS; i++)
        while ((p->channels & OUTPUT_CHANNEL(i + 1)) && p->offset[i] < p->end[i]) {
            uint64_t size;

            if (!p->ops->has_room(p->client))
                return OUTPUT_PUMP_WAITING;
            if (sent >= p->ops->turn_max)
                return OUTPUT_PUMP_MORE;
            if (p->fd[i] < 0 && stored_output_open(p->manager, p->execution, i + 1, &p->fd[i], &size, err) < 0)
                return OUTPUT_PUMP_FAILED;
            size_t n = p->fd[i] < 0              ? 0
                       : i + 1 == CONTEXT_EVENTS ? output_pump_send_event(p, i)
                                                 : output_pump_send_stored(p, i);
            if (n == 0)
                break;
            sent += n;
        }
    if (p->watch)
        return OUTPUT_PUMP_WAITING;
    if (p->ops->send_end)
        p->ops->send_end(p->client, p->end_json.data);
    return OUTPUT_PUMP_ENDED;
}

/* --- live output --- */

static void output_pump_send_live(struct output_pump *p, int i, bool last)
{
    struct buf *b = &p->split_character[i];

    if (b->len > 0)
        buf_drop(b, output_pump_send(p, i, b->data, b->len, last));
}

void output_pump_add(struct output_pump *p, int channel, const void *data, size_t len)
{
    buf_add(&p->split_character[channel - 1], data, len);
    output_pump_send_live(p, channel - 1, false);
}

void output_pump_flush(struct output_pump *p)
{
    output_pump_send_live(p, 0, true);
    output_pump_send_live(p, 1, true);
}
