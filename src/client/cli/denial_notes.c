/* A denial may be the cause of a failure, so denials are printed briefly after a failure only. The
 * receipt lists them in every case. */
#include "client/cli/denial_notes.h"

#include "client/cli/report.h"

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

bool hint_note(const char *hint)
{
    if (!hint[0] || hint_is_general(hint) || !isatty(STDERR_FILENO))
        return false;
    report_note("hint: %s", hint);
    return true;
}
