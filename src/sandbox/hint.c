/* Evidence in this order: how the execution ended (clocks, limits, requests), then the exception,
 * then the messages at the end of standard error. An exception that no rule knows is an error of
 * the program: then standard error is not searched, because an older message there would be taken
 * for its cause. Only an exception that wraps another failure (a child process that failed) leads
 * on to the messages.
 *
 * Every rule is a substring, because the texts come from many programs and versions. A wrong match
 * costs a misleading sentence and nothing else: hints are never read by cove itself. */
#include "sandbox/hint_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "policy/languages.h"

#include <ctype.h>
#include <stdio.h>
#include <unistd.h>

#define VALUE_MAX 2048u     /* bytes of an exception's value that are read */
#define TRACEBACK_MAX 8192u /* bytes of the end of a traceback that are read */
#define NAME_MAX_LETTERS 48u

static bool hint_say(struct hint *h, const char *at UNUSED, const char *end UNUSED, const char *text)
{
    buf_adds(&h->out, text);
    return true;
}

static const struct {
    const char *pattern;
    hint_writer *write;
    const char *text;
} hint_causes[] = {
#define CAUSE(pattern, writer, text) { pattern, writer, text },
#include "sandbox/hint_causes.def"
#undef CAUSE
};

/* --- names from untrusted text --- */

bool hint_token(const char *s, size_t len, char ret[HINT_TOKEN_MAX])
{
    ret[0] = '\0';
    if (len == 0 || len >= HINT_TOKEN_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)s[i]) && !strchr("._/@+-", s[i]))
            return false;
    memcpy(ret, s, len);
    ret[len] = '\0';
    return true;
}

bool hint_token_quoted(const char *at, char ret[HINT_TOKEN_MAX])
{
    static const char *const quotes[][2] = { { "'", "'" }, { "\"", "\"" }, { "\u2018", "\u2019" } };

    ret[0] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(quotes); i++)
        if (str_starts(at, quotes[i][0])) {
            const char *begin = at + strlen(quotes[i][0]);
            const char *end = strstr(begin, quotes[i][1]);

            return end && hint_token(begin, (size_t)(end - begin), ret);
        }
    return false;
}

bool hint_token_before(const char *start, const char *end, char ret[HINT_TOKEN_MAX])
{
    const char *p = end;

    while (p > start && !isspace((unsigned char)p[-1]))
        p--;
    if (end - p > 2 && (*p == '\'' || *p == '"') && end[-1] == *p)
        return hint_token(p + 1, (size_t)(end - p) - 2, ret);
    return hint_token(p, (size_t)(end - p), ret);
}

bool hint_token_after(const char *at, char ret[HINT_TOKEN_MAX])
{
    return hint_token(at, strcspn(at, " \t\r\n,;:'\""), ret);
}

bool hint_has_text(const struct hint *h, const char *pattern)
{
    return (h->line.len && strstr(h->line.data, pattern)) || (h->text.len && strstr(h->text.data, pattern)) ||
           (h->facts->code && strstr(h->facts->code, pattern));
}

bool hint_is_language(const struct hint *h, const char *name)
{
    return h->facts->language && str_eq(h->facts->language, name);
}

const char *hint_start(const struct hint *h)
{
    return h->in_line ? h->line.data : h->text.data;
}

/* --- phrases --- */

void hint_add_packages(struct hint *h, const char *debian)
{
    const char *installer = hint_is_language(h, "node") ? "npm" : "pip";

    if (h->facts->has_network && h->facts->language)
        buf_addf(&h->out, " %s can install it, where the rules allow preset:%s.", installer,
                 installer[0] == 'n' ? "npm" : "pypi");
    else if (h->facts->place == HINT_RUN) {
        if (debian && debian[0])
            buf_addf(&h->out, " Packages come from this host: apt-get install %s.", debian);
        else
            buf_adds(&h->out, " Packages come from this host; nothing can be installed from inside.");
    } else if (debian && debian[0]) {
        buf_addf(&h->out, " Nothing can be installed from inside; the operator of the host can install %s.", debian);
    } else {
        buf_adds(&h->out, " Nothing can be installed from inside: packages come from the host.");
    }
}

void hint_add_raise(struct hint *h, enum limit l)
{
    const char *setting = h->facts->setting ? h->facts->setting(l) : NULL;
    bool of_execution = l == LIMIT_WALL || l == LIMIT_OUTPUT || l == LIMIT_CPU_TIME;

    if (setting)
        buf_addf(&h->out, "raise %s%s", h->facts->place == HINT_RUN ? "--" : "", setting);
    else
        buf_addf(&h->out, "raise limits.%s in a policy", limit_info(l)->name);
    if (!of_execution && (h->facts->place == HINT_PROCESS || h->facts->place == HINT_CONTEXT))
        buf_adds(&h->out, " when you create the sandbox");
}

void hint_add_value(struct hint *h, enum limit l)
{
    char text[LIMIT_TEXT];

    if (h->facts->limits && !limit_is_unlimited(l, h->facts->limits->v[l]))
        buf_addf(&h->out, " of %s", limit_print(l, h->facts->limits->v[l], text));
}

bool hint_denial(struct hint *h)
{
    static const char by_flag[] = "allow with --policy ";
    const struct denial *d;

    if (h->facts->ndenials == 0)
        return false;
    d = &h->facts->denials[h->facts->ndenials - 1].denial;
    buf_addf(&h->out, "The system call %s was refused: %.*s", d->call, (int)strcspn(d->rule, ":"), d->rule);
    if (h->facts->place != HINT_RUN && str_starts(d->fix, by_flag))
        buf_addf(&h->out, "; a policy that extends %s allows it.", d->fix + strlen(by_flag));
    else
        buf_addf(&h->out, "; %s.", d->fix);
    return true;
}

/* --- evidence --- */

/* Adds text with NUL bytes and carriage returns replaced. */
static void hint_add_evidence(struct buf *b, const char *s, size_t len)
{
    size_t from = b->len;

    buf_add(b, s, len);
    for (size_t i = from; i < b->len; i++)
        if (b->data[i] == '\0' || b->data[i] == '\r')
            b->data[i] = ' ';
}

static bool hint_is_exception_name(const char *s, size_t len)
{
    static const char *const ends[] = { "Error", "Exception", "Interrupt", "Exit", "gaierror", "herror", "timeout" };

    if (len > NAME_MAX_LETTERS)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!isalnum((unsigned char)s[i]) && s[i] != '_' && s[i] != '.')
            return false;
    for (size_t i = 0; i < ARRAY_LEN(ends); i++)
        if (len >= strlen(ends[i]) && memcmp(s + len - strlen(ends[i]), ends[i], strlen(ends[i])) == 0)
            return true;
    return false;
}

/* The last line of a traceback in the output: "NAME: VALUE" of Python, "NAME [CODE]: VALUE" of
 * Node. Without the frames of a traceback it may be any message, and is not an exception. */
static void hint_find_exception(struct hint *h)
{
    const char *text = h->text.data, *found = NULL;
    size_t name_len = 0;

    if (!strstr(text, "\n  File \"") && !str_starts(text, "  File \"") && !strstr(text, "\n    at "))
        return;
    for (const char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        const char *name = str_starts(line, "Uncaught ") ? line + 9 : line;
        size_t n = strcspn(name, ": [\n");

        if (n && hint_is_exception_name(name, n) &&
            (name[n] == ':' || name[n] == '\0' || name[n] == '\n' || str_starts(name + n, " ["))) {
            found = name;
            name_len = n;
        }
    }
    if (!found)
        return;
    size_t package = 0;
    for (size_t i = 0; i < name_len; i++)
        package = found[i] == '.' ? i + 1 : package;
    hint_add_evidence(&h->line, found + package, min_size(strcspn(found, "\n") - package, VALUE_MAX));
}

static void hint_collect(struct hint *h)
{
    const struct hint_facts *f = h->facts;

    if (f->traceback) {
        size_t len = strlen(f->traceback), n = min_size(len, TRACEBACK_MAX);

        hint_add_evidence(&h->text, f->traceback + len - n, n);
        buf_adds(&h->text, "\n");
    }
    if (f->output_len) {
        size_t n = min_size(f->output_len, HINT_OUTPUT_MAX);

        hint_add_evidence(&h->text, f->output + f->output_len - n, n);
    }
    if (f->exception_name) {
        hint_add_evidence(&h->line, f->exception_name, strnlen(f->exception_name, VALUE_MAX));
        if (f->exception_value && f->exception_value[0]) {
            buf_adds(&h->line, ": ");
            hint_add_evidence(&h->line, f->exception_value, strnlen(f->exception_value, VALUE_MAX));
        }
    } else if (h->text.len) {
        hint_find_exception(h);
    }
}

/* An exception that only reports the failure of something else, whose messages say why. */
static bool hint_is_wrapper(const struct hint *h)
{
    static const char *const wrappers[] = { "CalledProcessError",    "SystemExit",       "KeyboardInterrupt",
                                            "Error: Command failed", "Error: spawnSync", "AggregateError" };

    for (size_t i = 0; i < ARRAY_LEN(wrappers); i++)
        if (str_starts(h->line.data, wrappers[i]))
            return true;
    return false;
}

/* An error of the program whose value is its own data, which may hold any of the patterns. */
static bool hint_is_own_error(const struct hint *h)
{
    static const char *const names[] = { "KeyError", "AssertionError", "IndexError", "AttributeError",
                                         "StopIteration" };

    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_starts(h->line.data, names[i]))
            return true;
    return false;
}

static bool hint_search(struct hint *h, const struct buf *in)
{
    if (!in->len)
        return false;
    h->in_line = in == &h->line;
    for (size_t i = 0; i < ARRAY_LEN(hint_causes); i++) {
        size_t len = strlen(hint_causes[i].pattern);

        for (const char *at = in->data; (at = strstr(at, hint_causes[i].pattern)) != NULL; at++)
            if (hint_causes[i].write(h, at, at + len, hint_causes[i].text))
                return true;
    }
    return false;
}

/* --- what remains when no rule matches --- */

#define HINT_RAISED "The program raised "
#define HINT_EXITED "The program itself ended with exit code "

bool hint_is_general(const char *hint)
{
    return str_starts(hint, HINT_RAISED) || str_starts(hint, HINT_EXITED);
}

static bool hint_exception(struct hint *h)
{
    char name[HINT_TOKEN_MAX];

    if (!h->line.len || !hint_token(h->line.data, strcspn(h->line.data, ": ["), name))
        return false;
    buf_addf(&h->out, HINT_RAISED "%s and did not catch it. The traceback shows the line to correct.", name);
    return true;
}

static bool hint_exit(struct hint *h)
{
    const struct hint_facts *f = h->facts;

    if (f->exit_code > 128 && f->exit_code < 128 + 65)
        return hint_signal(h, f->exit_code - 128);
    if (f->exit_code == 126)
        buf_adds(&h->out,
                 "The file was found and is not executable. Set its mode with chmod +x, or name its interpreter: "
                 "sh FILE, python3 FILE.");
    else if (f->exit_code == 127)
        buf_adds(&h->out, "A command was not found. Check its name, or use another program.");
    else if (f->exit_code > 0)
        buf_addf(&h->out, HINT_EXITED "%d%s.", f->exit_code,
                 f->output_len ? "; its messages are in stderr" : " and wrote nothing to stderr");
    else
        return false;
    return true;
}

/* curl --silent reports a failure only by its exit code. */
static bool hint_silent_curl(struct hint *h)
{
    const struct hint_facts *f = h->facts;

    return (f->exit_code == 6 || f->exit_code == 7) && !f->output_len && f->code && strstr(f->code, "curl") &&
           hint_network(h, NULL, NULL, NULL);
}

/* Without a message about the network; an exception of the program itself is not blamed on it. */
static bool hint_unnamed_refusal(struct hint *h)
{
    const struct receipt_egress *e = h->facts->egress;

    return !h->line.len && h->facts->has_network && e && e->refused > 0 &&
           hint_refused_destination(h, NULL, NULL, NULL);
}

static void hint_add_notes(struct hint *h)
{
    const struct hint_facts *f = h->facts;

    for (size_t i = 0; i < f->nlimit_hits; i++)
        if (f->limit_hits[i].limit == LIMIT_OUTPUT) {
            buf_adds(&h->out, " Output past the limit");
            hint_add_value(h, LIMIT_OUTPUT);
            buf_adds(&h->out, " was dropped: print less, or ");
            hint_add_raise(h, LIMIT_OUTPUT);
            buf_adds(&h->out, ".");
        }
    if (f->context_reset)
        buf_adds(&h->out, " The variables of the context are lost: run the code that defines them again.");
}

static bool hint_failed(const struct hint_facts *f)
{
    return f->ended_by != ENDED_EXIT || f->exit_code != 0 || f->exception_name;
}

static bool hint_find(struct hint *h)
{
    if (hint_ended(h))
        return true;
    hint_collect(h);
    if (h->line.len && hint_is_own_error(h))
        return hint_exception(h);
    if (hint_search(h, &h->line))
        return true;
    if ((!h->line.len || hint_is_wrapper(h)) && hint_search(h, &h->text))
        return true;
    if (h->facts->oom_kills)
        return hint_memory(h, NULL, NULL, NULL);
    return hint_silent_curl(h) || hint_denial(h) || hint_unnamed_refusal(h) || hint_exception(h) || hint_exit(h);
}

/* Cuts after the last sentence that fits. */
static void hint_copy(const struct buf *out, char ret[HINT_MAX])
{
    size_t n = min_size(out->len, HINT_MAX - 1);

    if (n < out->len)
        while (n > 1 && !(out->data[n - 1] == '.' && out->data[n] == ' '))
            n--;
    memcpy(ret, out->data, n);
    ret[n] = '\0';
}

bool hint_write(const struct hint_facts *f, char ret[HINT_MAX])
{
    struct hint h = { .facts = f };
    bool found = hint_failed(f) && hint_find(&h);

    ret[0] = '\0';
    if (found) {
        hint_add_notes(&h);
        hint_copy(&h.out, ret);
    }
    buf_done(&h.line);
    buf_done(&h.text);
    buf_done(&h.out);
    return found;
}

void hint_facts_from_receipt(struct hint_facts *f, const struct receipt *r, struct limit_hit hits[LIMIT_COUNT])
{
    f->ended_by = r->ended_by;
    f->exit_code = r->exit_code;
    f->has_network = r->network.mode != NETWORK_NONE;
    f->egress = &r->egress;
    f->signal = r->signal;
    f->limits = &r->limits;
    f->oom_kills = r->oom_kills.why ? 0 : r->oom_kills.v;
    f->denials = r->denials;
    f->ndenials = r->ndenials;
    f->limit_hits = hits;
    f->nlimit_hits = limit_hits_list(r, hits);
}

bool hint_host_has_program(const char *name)
{
    char path[256];

    for (size_t i = 0; language_dirs[i]; i++) {
        int n = snprintf(path, sizeof(path), "%s/%s", language_dirs[i], name);

        if (n > 0 && (size_t)n < sizeof(path) && access(path, X_OK) == 0)
            return true;
    }
    return false;
}
