#include "tests/unit/test.h"

#include "client/cli/completion.h"
#include "client/cli/help.h"

#include "core/base/err.h"
#include "core/base/str.h"

#include <stdio.h>

/* Calls fn with every option of every verb. */
static void each_option(void (*fn)(const struct cli_verb *v, const struct cli_option *o, const char *text),
                        void (*print)(struct buf *out, const struct cli_verb *v))
{
    size_t n;
    const struct cli_verb *v = cli_verbs(&n);

    for (size_t i = 0; i < n; i++) {
        auto_buf out = { 0 };

        print(&out, &v[i]);
        for (const struct cli_option *o = NULL; (o = cli_option_next(&v[i], o));)
            fn(&v[i], o, out.data);
    }
}

static void has_long_name(const struct cli_verb *v, const struct cli_option *o, const char *text)
{
    auto_free char *flag = str_printf("--%s", o->name);

    if (!strstr(text, flag))
        fail_msg("the help of %s lacks %s", v->name, flag);
}

static void has_mdoc_name(const struct cli_verb *v, const struct cli_option *o, const char *text)
{
    auto_free char *flag = str_printf("Fl \\-%s", o->name);

    if (!strstr(text, flag))
        fail_msg("cove-%s(1) lacks %s", v->name, flag);
}

TEST(help_names_every_flag_of_every_verb)
{
    each_option(has_long_name, help_verb);
}

TEST(manual_names_every_flag_of_every_verb)
{
    each_option(has_mdoc_name, help_man);
}

TEST(every_limit_with_a_flag_is_an_option_of_run)
{
    const struct cli_verb *run = cli_verb_find("run");

    for (int i = 0; i < LIMIT_COUNT; i++) {
        const char *flag = limit_info((enum limit)i)->flag;

        if (flag)
            assert_non_null(cli_option_find(run, flag, strlen(flag)));
    }
}

TEST(names_and_letters_of_a_verb_are_unique_and_every_verb_has_help)
{
    size_t n;
    const struct cli_verb *v = cli_verbs(&n);

    for (size_t i = 0; i < n; i++) {
        assert_ptr_equal(cli_option_letter(&v[i], 'h'), cli_option_find(&v[i], "help", 4));
        for (const struct cli_option *o = NULL; (o = cli_option_next(&v[i], o));) {
            assert_ptr_equal(cli_option_find(&v[i], o->name, strlen(o->name)), o);
            if (o->letter)
                assert_ptr_equal(cli_option_letter(&v[i], o->letter), o);
            assert_true(o->help[strlen(o->help) - 1] != '.');
        }
    }
}

TEST(short_help_fits_on_a_screen)
{
    size_t n;
    const struct cli_verb *v = cli_verbs(&n);

    for (size_t i = 0; i < n; i++) {
        auto_buf out = { 0 };
        size_t lines = 0;

        help_verb_short(&out, &v[i]);
        for (const char *p = out.data; (p = strchr(p, '\n')); p++)
            lines++;
        if (lines > 24)
            fail_msg("the summary of %s has %zu lines", v[i].name, lines);
        assert_non_null(strstr(out.data, v[i].synopsis[0]));
    }
}

TEST(overview_lists_every_verb_once_and_starts_with_six)
{
    auto_buf out = { 0 };
    size_t n;
    const struct cli_verb *v = cli_verbs(&n);

    help_overview(&out, "0.0.0");
    assert_non_null(strstr(out.data, "\nStart with:\n  run "));
    for (size_t i = 0; i < n; i++) {
        auto_free char *line = str_printf("\n  %-11s %s\n", v[i].name, v[i].brief);
        const char *found = strstr(out.data, line);

        if (!found || strstr(found + 1, line))
            fail_msg("the overview does not list %s once", v[i].name);
    }
    const char *second = strstr(strstr(out.data, "Start with:"), "\n\n");
    size_t lines = 0;
    for (const char *p = strstr(out.data, "Start with:"); p < second; p++)
        lines += *p == '\n';
    assert_int_equal(lines, 6);
}

TEST(help_fits_into_eighty_columns)
{
    size_t n;
    const struct cli_verb *v = cli_verbs(&n);

    for (size_t i = 0; i < n; i++) {
        auto_buf out = { 0 };

        help_verb(&out, &v[i]);
        help_overview(&out, "0.0.0");
        for (const char *line = out.data; *line;) {
            size_t len = strcspn(line, "\n");

            if (len > 84)
                fail_msg("%s: %zu columns: %.*s", v[i].name, len, (int)len, line);
            line += len + (line[len] == '\n');
        }
    }
}

TEST(completion_knows_every_flag_in_every_shell)
{
    static const struct cli_setting server[] = { { "http.idleTimeout", "don't [wait]" }, { NULL, NULL } };
    static const char *const shells[] = { "bash", "zsh", "fish" };
    size_t n;
    const struct cli_verb *v = cli_verbs(&n);

    for (size_t s = 0; s < ARRAY_LEN(shells); s++) {
        auto_buf out = { 0 };

        assert_true(completion_script(shells[s], server, &out));
        assert_non_null(strstr(out.data, "http-idle-timeout"));
        for (size_t i = 0; i < n; i++)
            for (const struct cli_option *o = NULL; (o = cli_option_next(&v[i], o));) {
                auto_free char *flag = str_printf(s == 2 ? "-l %s" : "--%s", o->name);

                if (!strstr(out.data, flag))
                    fail_msg("%s: no %s", shells[s], flag);
            }
    }
    auto_buf none = { 0 };
    assert_false(completion_script("tcsh", server, &none));
}

TEST(documentation_names_every_error_code_and_every_verb)
{
    auto_buf errors = { 0 }, cli = { 0 };
    size_t n;
    const struct cli_verb *v = cli_verbs(&n);

    help_errors_markdown(&errors);
    help_markdown(&cli);
    for (int i = 1; i < ERR_COUNT; i++)
        assert_non_null(strstr(errors.data, err_info((enum err_id)i)->code));
    for (size_t i = 0; i < n; i++) {
        auto_free char *title = str_printf("\n## cove %s\n", v[i].name);

        assert_non_null(strstr(cli.data, title));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(help_names_every_flag_of_every_verb),
        RUN(manual_names_every_flag_of_every_verb),
        RUN(every_limit_with_a_flag_is_an_option_of_run),
        RUN(names_and_letters_of_a_verb_are_unique_and_every_verb_has_help),
        RUN(short_help_fits_on_a_screen),
        RUN(overview_lists_every_verb_once_and_starts_with_six),
        RUN(help_fits_into_eighty_columns),
        RUN(completion_knows_every_flag_in_every_shell),
        RUN(documentation_names_every_error_code_and_every_verb),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
