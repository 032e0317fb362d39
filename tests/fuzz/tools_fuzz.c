/* Patterns of paths from the caller of a tool, and the output of grep from a sandbox. The first
 * byte chooses; of a pattern, the rest of the first line is the pattern and the next line a path.
 *
 * Checked in addition to memory errors: a path matches step by step as it does at once; records and
 * their parts are parts of the input; shown text is UTF-8 without a NUL. */
#include "core/base/mem.h"
#include "core/base/str.h"
#include "core/base/text.h"
#include "service/tools/glob_pattern.h"
#include "service/tools/grep_output.h"
#include "service/tools/tool_internal.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void match_by_steps(const struct glob_pattern *g, char *path)
{
    bool at_once = glob_pattern_matches(g, path), matches = false, continues = true;
    struct glob_position at, next;
    char *name;

    glob_pattern_begin(g, &at);
    while ((name = strsep(&path, "/"))) {
        if (!*name)
            continue;
        matches = glob_pattern_step(g, &at, name, &next);
        must(continues || !matches); /* what cannot continue never matches again */
        continues = glob_pattern_continues(g, &next);
        at = next;
    }
    must(at_once == matches);
}

static void read_pattern(const char *data, size_t size)
{
    auto_free char *text = str_dup_n(data, strnlen(data, size));
    char *path = text, *pattern = strsep(&path, "\n");
    auto_(glob_pattern) g = NULL;
    struct err err = { 0 };

    if (glob_pattern_new(pattern, &g, &err) < 0)
        must(err.id != ERR_NONE && err.msg[0]);
    else
        match_by_steps(g, path ? path : pattern);
}

static void check_record(void *arg, const char *name, const char *text, size_t len)
{
    const struct buf *all = arg;
    uint64_t number;
    auto_buf shown = { 0 };
    bool is_match;
    size_t head = 0;

    must(name >= all->data && text > name && text + len <= all->data + all->len);
    must(!memchr(text, '\n', len) && memchr(name, '\0', (size_t)(text - name)) == text - 1);
    if (grep_output_parse_line(text, len, &number, &is_match, &head))
        must(head > 1 && head <= len);
    (void)grep_output_parse_count(text, len, &number);
    must(tool_text_whole_length(text, len) <= len && tool_text_broken_start(text, len) <= len);
    tool_text_add(&shown, text, len);
    must(text_is_utf8(shown.data ? shown.data : "", shown.len) &&
         !memchr(shown.data ? shown.data : "", '\0', shown.len));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_buf all = { 0 };

    if (size == 0)
        return 0;
    if (data[0] == 'p') {
        read_pattern((const char *)data + 1, size - 1);
        return 0;
    }
    buf_add(&all, data + 1, size - 1);
    (void)grep_output_read(&all, data[0] == 'n', check_record, &all);
    return 0;
}
