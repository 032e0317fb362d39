/* Every byte of a channel is counted once: as kept, dropped or lost. So kept + dropped is what the
 * program has written, unless the sink lost bytes. */
#include "service/output_stream.h"

uint64_t output_stream_kept(const struct output_stream *s)
{
    return s->kept[0] + s->kept[1] + s->kept[2];
}

static uint64_t output_stream_room(const struct output_stream *s)
{
    uint64_t kept = output_stream_kept(s), mine = s->limit > kept ? s->limit - kept : 0;

    return s->sink->room ? min_u64(mine, s->sink->room(s->arg)) : mine;
}

static void output_stream_count(struct output_stream *s, int channel, size_t accepted, size_t kept)
{
    s->kept[channel - 1] += kept;
    s->lost[channel - 1] += accepted - kept;
}

void output_stream_write(struct output_stream *s, int channel, const void *data, size_t len)
{
    size_t n = (size_t)min_u64(len, output_stream_room(s));

    s->dropped[channel - 1] += len - n;
    if (n > 0)
        output_stream_count(s, channel, n, s->sink->write(s->arg, channel, data, n));
}

void output_stream_write_event(struct output_stream *s, const struct kernel_event *e)
{
    auto_buf json = { 0 };

    kernel_event_json(e, &json);
    buf_adds(&json, s->sink->event_end);
    if (json.len <= output_stream_room(s))
        output_stream_count(s, OUTPUT_EVENTS, json.len, s->sink->write_event(s->arg, e, &json));
    else
        s->dropped[OUTPUT_EVENTS - 1] += json.len;
}
