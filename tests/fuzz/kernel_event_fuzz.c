/* Any bytes on the channel of a language kernel; the first byte chooses the pieces into which
 * the rest is cut.
 *
 * Checked in addition to memory errors: the same events are found for every way of cutting, and
 * the output for an event is JSON without a newline. */
#include "service/kernel_event.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(bool ok)
{
    if (!ok)
        abort();
}

struct heard {
    size_t events, refused;
};

static void on_event(void *arg, const struct kernel_event *e)
{
    struct heard *h = arg;
    auto_buf told = { 0 };

    h->refused += e == NULL;
    if (!e)
        return;
    h->events++;
    must(strlen(e->id) <= KERNEL_EVENT_ID_MAX);
    kernel_event_json(e, &told);
    must(!memchr(told.data, '\n', told.len));
    json_t *again = json_loadb(told.data, told.len, JSON_REJECT_DUPLICATES, NULL);
    must(json_is_object(again));
    json_decref(again);
}

static struct heard feed(const uint8_t *data, size_t len, size_t cut)
{
    struct kernel_event_reader r = { 0 };
    struct heard h = { 0 };

    for (size_t at = 0; at < len; at += cut)
        kernel_event_reader_feed(&r, data + at, min_size(cut, len - at), on_event, &h);
    kernel_event_reader_reset(&r);
    return h;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    if (len < 2)
        return 0;
    struct heard whole = feed(data + 1, len - 1, len), cut = feed(data + 1, len - 1, (size_t)data[0] + 1);
    must(whole.events == cut.events && whole.refused == cut.refused);
    return 0;
}
