#include "tests/unit/test.h"

#include "service/tools/grep_output.h"

static void note_record(void *arg, const char *name, const char *text, size_t len)
{
    buf_addf(arg, "[%s|%.*s]", name, (int)len, text);
}

TEST(records_end_at_their_newline_and_names_at_their_nul)
{
    static const struct {
        const char *data;
        size_t len;
        bool names_only;
        const char *records;
        bool complete;
    } rows[] = {
        { "", 0, false, "", true },
        { "a\0001:x\nb\00020:\n", 12, false, "[a|1:x][b|20:]", true },
        { "two\nlines:3\0004:y\n", 16, false, "[two\nlines:3|4:y]", true },
        { "a\0001:x\nb\0002:cut", 13, false, "[a|1:x]", false },
        { "a\0001:x\nname", 10, false, "[a|1:x]", false },
        { "a\000b\nc\000", 6, true, "[a|][b\nc|]", true },
        { "a\000b", 3, true, "[a|]", false },
        { "\0001:x\n", 5, false, "[|1:x]", true },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        auto_buf out = { 0 }, seen = { 0 };

        buf_add(&out, rows[i].data, rows[i].len);
        buf_adds(&seen, "");
        bool complete = grep_output_read(&out, rows[i].names_only, note_record, &seen);
        if (complete != rows[i].complete || strcmp(seen.data, rows[i].records) != 0)
            fail_msg("row %zu: %s", i, seen.data);
    }
}

TEST(a_line_has_a_number_and_a_separator)
{
    static const struct {
        const char *text;
        bool valid, is_match;
        uint64_t line;
    } rows[] = { { "12:a", true, true, 12 }, { "7-b", true, false, 7 },
                 { "3:", true, true, 3 },    { "3", false, false, 0 },
                 { ":x", false, false, 0 },  { "x:1", false, false, 0 },
                 { "3 x", false, false, 0 }, { "9999999999999999999:x", false, false, 0 } };
    uint64_t line, count;
    bool is_match;
    size_t head;

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        bool valid = grep_output_parse_line(rows[i].text, strlen(rows[i].text), &line, &is_match, &head);

        if (valid != rows[i].valid || (valid && (line != rows[i].line || is_match != rows[i].is_match)))
            fail_msg("'%s'", rows[i].text);
    }
    assert_true(grep_output_parse_count("12", 2, &count) && count == 12);
    assert_false(grep_output_parse_count("0", 1, &count));
    assert_false(grep_output_parse_count("1x", 2, &count));
    assert_false(grep_output_parse_count("", 0, &count));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(records_end_at_their_newline_and_names_at_their_nul),
        cmocka_unit_test(a_line_has_a_number_and_a_separator),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
