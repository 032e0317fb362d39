/* Hints about the code itself: syntax, names, and code of another language. */
#include "sandbox/hint_internal.h"

#include "core/base/str.h"

static const struct {
    const char *language, *name, *text;
} hint_names[] = {
#define CODE_NAME(language, name, text) { language, name, text },
#define CODE_LINE(language, prefix, text)
#include "sandbox/hint_names.def"
#undef CODE_NAME
#undef CODE_LINE
};

static const struct {
    const char *language, *prefix, *text;
} hint_lines[] = {
#define CODE_NAME(language, name, text)
#define CODE_LINE(language, prefix, text) { language, prefix, text },
#include "sandbox/hint_names.def"
#undef CODE_NAME
#undef CODE_LINE
};

static const char *hint_language_name(const struct hint *h)
{
    return hint_is_language(h, "python") ? "Python" : hint_is_language(h, "node") ? "JavaScript" : "a shell command";
}

/* Adds the text with the language in place of %s. */
static void hint_add_for_language(struct hint *h, const char *text)
{
    const char *place = strstr(text, "%s");

    buf_add(&h->out, text, place ? (size_t)(place - text) : strlen(text));
    if (place) {
        buf_adds(&h->out, hint_language_name(h));
        buf_adds(&h->out, place + 2);
    }
}

static const char *hint_skip_blanks(const char *s)
{
    return s + strspn(s, " \t\r\n");
}

static bool hint_known_line(struct hint *h, const char *line)
{
    const char *language = hint_is_language(h, "python") || hint_is_language(h, "node") ? h->facts->language : "bash";

    for (size_t i = 0; i < ARRAY_LEN(hint_lines); i++)
        if (str_eq(hint_lines[i].language, language) && str_starts(line, hint_lines[i].prefix)) {
            const char *install = strstr(line, " install ");

            hint_add_for_language(h, hint_lines[i].text);
            if (install && install < line + strcspn(line, "\n"))
                buf_adds(&h->out, " Nothing can be installed in a sandbox: packages come from the host.");
            return true;
        }
    return false;
}

/* The line that a traceback shows: after the last line that begins with '  File "', or after the
 * first line of a traceback of Node, "cell-1.js:2". NULL: none. */
static const char *hint_shown_line(const struct hint *h)
{
    const char *shown = NULL;

    if (!h->text.len)
        return NULL;
    if (!hint_is_language(h, "python")) {
        size_t first = strcspn(h->text.data, "\n");

        return h->text.data[first] && h->text.data[first ? first - 1 : 0] != ':'
                   ? hint_skip_blanks(h->text.data + first)
                   : NULL;
    }
    for (const char *p = h->text.data; (p = strstr(p, "  File \"")) != NULL; p++) {
        const char *end = strchr(p, '\n');

        shown = end ? hint_skip_blanks(end) : shown;
    }
    return shown;
}

bool hint_syntax(struct hint *h, const char *at UNUSED, const char *end UNUSED, const char *text)
{
    const char *shown = hint_shown_line(h);

    if ((shown && hint_known_line(h, shown)) ||
        (h->facts->code && hint_known_line(h, hint_skip_blanks(h->facts->code))))
        return true;
    if (text) {
        buf_adds(&h->out, text);
        return true;
    }
    if (hint_has_text(h, "Cannot use import statement")) {
        size_t len = shown ? strcspn(shown, "\n") : 0;

        if (shown && !memchr(shown, '\'', len) && !memchr(shown, '"', len))
            buf_adds(&h->out, "This looks like Python and not JavaScript. Send it with language python.");
        else
            buf_adds(&h->out, "This code cannot use import statements. Use require() or await import().");
        return true;
    }
    if (hint_has_text(h, "invalid character '")) {
        buf_adds(&h->out,
                 "The code has a character that no program may have, often a typographic quote or dash. Replace it by "
                 "' or \" or - and send the code again.");
        return true;
    }
    if (hint_has_text(h, "'await' outside") || hint_has_text(h, "await is only valid")) {
        buf_adds(&h->out,
                 "await stands inside a function that is not async. Declare the function with async, or use await at "
                 "the top level of the code.");
        return true;
    }
    if (hint_has_text(h, "never closed") || hint_has_text(h, "unterminated") || hint_has_text(h, "unexpected EOF") ||
        hint_has_text(h, "Unexpected end of input") || hint_has_text(h, "unexpected end of file")) {
        buf_adds(&h->out,
                 "The code ends too early: a bracket, a quote or a block is not closed, so nothing of it ran. Send the "
                 "whole code.");
        return true;
    }
    buf_addf(&h->out,
             "The code has a syntax error%s. Correct the line that the message shows and send the whole code again.",
             h->facts->language ? ", so nothing of it ran" : "");
    return true;
}

/* Python: "NameError: name 'x' is not defined"; Node: "ReferenceError: x is not defined". */
bool hint_name(struct hint *h, const char *at UNUSED, const char *end, const char *text UNUSED)
{
    static const char prefix[] = ": name ";
    char name[HINT_TOKEN_MAX];
    bool found = str_starts(end, prefix) ? hint_token_quoted(end + strlen(prefix), name)
                                         : str_starts(end, ": ") && hint_token_after(end + 2, name);

    if (!found || !strstr(end, "not defined"))
        return false;
    for (size_t i = 0; i < ARRAY_LEN(hint_names); i++)
        if (hint_is_language(h, hint_names[i].language) && str_eq(hint_names[i].name, name)) {
            hint_add_for_language(h, hint_names[i].text);
            return true;
        }
    if (hint_is_language(h, "python") && h->facts->modules) {
        auto_buf missing = { 0 };

        if (python_modules_missing(h->facts->modules, name, &missing) == 0) {
            buf_addf(&h->out, "%s is a module that is not imported. Add: import %s.", name, name);
            return true;
        }
    }
    buf_addf(&h->out, "%s is not defined. ", name);
    switch (h->facts->place) {
    case HINT_CONTEXT:
        buf_adds(&h->out, h->facts->context_reset
                              ? "Define it again."
                              : "Define or import it, or run the code that defines it in this context first.");
        break;
    case HINT_PROCESS:
        buf_adds(&h->out,
                 "This code ran in a process of its own, without the variables of earlier executions: define it in the "
                 "same code, or run without isolated.");
        break;
    case HINT_EXECUTE:
        buf_adds(&h->out,
                 "Each call starts in a fresh sandbox, without the variables of earlier calls: define or import it in "
                 "the same code, or use a sandbox.");
        break;
    case HINT_RUN:
        buf_adds(&h->out, "Define or import it before its use.");
        break;
    }
    return true;
}
