/* A denial may be the cause of a failure, so denials are printed briefly after a failure only. The
 * receipt lists them in every case. */
#include "client/cli/denial_notes.h"

#include "client/cli/report.h"

#include "core/base/buf.h"
#include "core/base/str.h"
#include "sandbox/hint.h"
#include "sandbox/limit_hits.h"

#include <string.h>
#include <unistd.h>

#define SHOWN_CALLS 3

static bool denial_notes_has(const char *hint, const char *name)
{
    return hint && name && strstr(hint, name);
}

/* Dropped output is reported with the end of the program. */
void denial_notes_limits(const struct receipt *r, const char *hint)
{
    struct limit_hit met[LIMIT_COUNT];
    size_t n = limit_hits_list(r, met);

    for (size_t i = 0; i < n; i++)
        if (met[i].limit != LIMIT_OUTPUT && !denial_notes_has(hint, limit_info(met[i].limit)->flag) &&
            !denial_notes_has(hint, limit_info(met[i].limit)->name))
            report_note("limit: %s: %s; %s", limit_info(met[i].limit)->name, met[i].how, met[i].fix);
}

void denial_notes_calls(const struct receipt *r, bool whose, const char *hint)
{
    uint64_t rest = r->denials_more;

    for (size_t i = 0; i < r->ndenials; i++) {
        const struct denial *d = &r->denials[i].denial;

        if (hint && strstr(hint, d->call))
            continue;
        if (i >= SHOWN_CALLS)
            rest += r->denials[i].count;
        else if (whose)
            report_note("refused: %s; %s", d->call, d->fix);
        else
            report_note("refused: %s: %.*s; %s", d->call, (int)strcspn(d->rule, ":"), d->rule, d->fix);
    }
    if (rest)
        report_note("refused: %" PRIu64 " more calls%s", rest, whose ? "" : "; --receipt lists them");
}

/* A missing rule has a fix; a rule that denies, or a closed address, has only its reason. */
static void denial_notes_destination(const struct egress_destination *d)
{
    auto_buf target = { 0 };
    bool is_v6 = strchr(d->host, ':') != NULL;

    buf_addf(&target, is_v6 ? "[%s]" : "%s", d->host);
    if (d->port)
        buf_addf(&target, ":%u", d->port);
    str_strip_control_chars(target.data);
    if (str_starts(d->reason, "no rule"))
        report_note("refused: %s: no rule allows it; allow with --allow %s", target.data, target.data);
    else
        report_note("refused: %s: %s", target.data, d->reason);
}

void denial_notes_network(const struct receipt *r, const char *hint)
{
    const struct receipt_egress *e = &r->egress;
    uint64_t shown = 0, rest = 0;

    if (e->absent_why)
        return;
    for (size_t i = 0; i < e->ndestinations; i++) {
        const struct egress_destination *d = &e->destinations[i];

        if (!d->refused || denial_notes_has(hint, d->host))
            continue;
        if (shown++ < SHOWN_CALLS)
            denial_notes_destination(d);
        else
            rest += d->refused;
    }
    if (rest)
        report_note("refused: %" PRIu64 " more connections; --receipt lists them", rest);
}

bool hint_note(const char *hint)
{
    if (!hint[0] || hint_is_general(hint) || !isatty(STDERR_FILENO))
        return false;
    report_note("hint: %s", hint);
    return true;
}
