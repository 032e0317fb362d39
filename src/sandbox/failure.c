#include "sandbox/failure.h"

#include "core/base/str.h"
#include "policy/languages.h"

void failure_set_code(struct failure *f, const char *language, const char *code)
{
    const struct language *l = language ? language_by_name(language) : NULL;

    free(f->code);
    f->code = code ? str_dup_n(code, strnlen(code, FAILURE_CODE_MAX)) : NULL;
    f->language = l ? l->name : NULL;
}

void failure_set_argv(struct failure *f, const char *const *argv)
{
    const struct language *l = language_by_program(argv[0]);
    auto_buf line = { 0 };

    if (l && argv[1] && argv[2] && str_eq(argv[1], l->code_flag)) {
        failure_set_code(f, l->name, argv[2]);
        return;
    }
    for (size_t i = 0; argv[i] && line.len < FAILURE_CODE_MAX; i++) {
        buf_adds(&line, i ? " " : "");
        buf_add(&line, argv[i], strnlen(argv[i], FAILURE_CODE_MAX));
    }
    failure_set_code(f, l ? l->name : NULL, line.data);
}

void failure_add_output(struct failure *f, const void *data, size_t len)
{
    const char *p = data;

    if (len > HINT_OUTPUT_MAX) {
        p += len - HINT_OUTPUT_MAX;
        len = HINT_OUTPUT_MAX;
    }
    if (f->output.len + len > 2 * HINT_OUTPUT_MAX)
        buf_drop(&f->output, f->output.len - min_size(f->output.len, HINT_OUTPUT_MAX - len));
    buf_add(&f->output, p, len);
}

static void failure_set_text(char **to, const char *from, bool end)
{
    size_t len = strlen(from), n = min_size(len, FAILURE_TEXT_MAX);

    free(*to);
    *to = str_dup_n(end ? from + len - n : from, n);
}

void failure_set_exception(struct failure *f, const char *name, const char *value, const char *traceback)
{
    failure_set_text(&f->exception_name, name, false);
    failure_set_text(&f->exception_value, value ? value : "", false);
    failure_set_text(&f->traceback, traceback ? traceback : "", true);
}

bool failure_needs_modules(const struct failure *f)
{
    if (f->exception_name && (strstr(f->exception_name, "NotFound") || strstr(f->exception_name, "NameError")))
        return true;
    return f->output.len && (strstr(f->output.data, "No module named") || strstr(f->output.data, "NameError"));
}

void failure_fill_facts(const struct failure *f, struct hint_facts *facts)
{
    facts->language = f->language;
    facts->code = f->code;
    facts->exception_name = f->exception_name;
    facts->exception_value = f->exception_value;
    facts->traceback = f->traceback;
    facts->output = f->output.data;
    facts->output_len = f->output.len;
}

void failure_done(struct failure *f)
{
    buf_done(&f->output);
    free(f->code);
    free(f->exception_name);
    free(f->exception_value);
    free(f->traceback);
    *f = (struct failure){ 0 };
}
