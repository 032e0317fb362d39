/* Programs and people rely on the log: each event is one line, whatever the message contains. */
#include "tests/unit/test.h"

#include "core/base/fd.h"
#include "core/base/log.h"
#include "core/base/str.h"

#include <stdio.h>

static char text[4096];

static void say(const char *request, const char *msg)
{
    int p[2], saved = dup(STDERR_FILENO);

    assert_int_equal(pipe(p), 0);
    assert_true(dup2(p[1], STDERR_FILENO) >= 0);
    log_write_with_ids(LOG_WARN, &(struct log_ids){ .request = request, .sandbox = "sbx" }, "%s", msg);
    log_debug("below the log level");
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(p[1]);
    ssize_t n = fd_read_full(p[0], text, sizeof(text) - 1);
    assert_true(n > 0);
    text[n] = '\0';
    close(p[0]);
    close(saved);
}

static size_t lines(void)
{
    size_t n = 0;

    for (const char *p = text; *p; p++)
        n += *p == '\n';
    return n;
}

TEST(a_message_with_line_breaks_is_one_line_in_every_format)
{
    static const enum log_format forms[] = { LOG_PLAIN, LOG_TEXT, LOG_JSON };

    log_setup("prog", LOG_INFO);
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        log_set_format(forms[i]);
        say("rq\n1", "two\nlines \"quoted\" \x1b[31m");
        assert_int_equal(lines(), 1);
        assert_null(strchr(text, '\x1b'));
    }
}

TEST(text_format_has_time_level_program_and_ids)
{
    log_setup("prog", LOG_INFO);
    log_set_format(LOG_TEXT);
    say("rq1", "hello");
    assert_true(strlen(text) > 24 && text[23] == 'Z');
    assert_string_equal(text + 24, " warning prog: hello (request rq1, sandbox sbx)\n");
    say(NULL, "hello");
    assert_string_equal(text + 24, " warning prog: hello (sandbox sbx)\n");
    log_set_format(LOG_PLAIN);
    say("", "hello");
    assert_string_equal(text, "prog: warning: hello (sandbox sbx)\n");
}

TEST(json_format_is_valid_json_with_the_ids)
{
    log_setup("prog", LOG_INFO);
    log_set_format(LOG_JSON);
    say("rq1", "a \"b\"\n");
    assert_non_null(strstr(text, "\"level\":\"warning\",\"program\":\"prog\",\"pid\":"));
    assert_non_null(strstr(text, "\"message\":\"a \\\"b\\\"\\n\",\"requestId\":\"rq1\",\"sandbox\":\"sbx\"}\n"));
}

TEST(levels_and_formats_are_parsed_by_name)
{
    enum log_level level;
    enum log_format f;

    assert_true(log_level_parse("warn", &level) && level == LOG_WARN);
    assert_true(log_level_parse("debug", &level) && level == LOG_DEBUG);
    assert_false(log_level_parse("loud", &level));
    assert_true(log_format_parse("json", &f) && f == LOG_JSON);
    assert_true(log_format_parse("text", &f) && f == LOG_TEXT);
    assert_false(log_format_parse("plain", &f));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_with_line_breaks_is_one_line_in_every_format),
        cmocka_unit_test(text_format_has_time_level_program_and_ids),
        cmocka_unit_test(json_format_is_valid_json_with_the_ids),
        cmocka_unit_test(levels_and_formats_are_parsed_by_name),
    };

    return cmocka_run_group_tests_name("log", tests, NULL, NULL);
}
