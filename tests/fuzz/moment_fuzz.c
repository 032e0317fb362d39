/* Times in a query, and the Last-Event-ID of a client that reconnects: from any client to the
 * server.
 *
 * Checked in addition to memory errors: a parsed time can be written and has the same value when
 * it is parsed again, including the year 9999; parsed offsets are those of the text; and a
 * refused text changes nothing. */
#include "server/api/api_internal.h"

#include "core/base/clock.h"
#include "core/base/str.h"

#include <stdio.h>

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_time(const char *text)
{
    char again[32];
    uint64_t ms, twice;

    if (!clock_from_rfc3339(text, &ms))
        return;
    clock_rfc3339_ms(ms, again);
    must(clock_from_rfc3339(again, &twice));
    must(twice == ms ||
         (twice < ms && str_starts(again, "9999-12-31T23:59:59"))); /* an offset can lead beyond the last second */
}

static void check_offsets(const char *text)
{
    uint64_t at[3] = { 7, 8, 9 };
    struct err err = { 0 };
    char again[80];

    if (follow_read_offsets(text, at, &err) < 0) {
        must(err.id == ERR_INVALID && err.msg[0] && at[0] == 7 && at[1] == 8 && at[2] == 9);
        return;
    }
    if (!*text)
        return;
    must(at[0] <= INT64_MAX && at[1] <= INT64_MAX && at[2] <= INT64_MAX);
    snprintf(again, sizeof(again), "%" PRIu64 "-%" PRIu64 "-%" PRIu64, at[0], at[1], at[2]);
    uint64_t twice[3];
    must(follow_read_offsets(again, twice, &err) == 0 && twice[0] == at[0] && twice[1] == at[1] && twice[2] == at[2]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_free char *text = str_dup_n((const char *)data, size);

    check_time(text);
    check_offsets(text);
    return 0;
}
