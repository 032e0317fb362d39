#include "service/tools/tool_output_files.h"

#include "core/base/str.h"

#include <strings.h>

static const char *output_file_type(const char *name, bool is_text)
{
    static const struct {
        const char *suffix, *type;
    } types[] = {
        { ".csv", "text/csv" },          { ".gif", "image/gif" },         { ".html", "text/html" },
        { ".jpeg", "image/jpeg" },       { ".jpg", "image/jpeg" },        { ".json", "application/json" },
        { ".md", "text/markdown" },      { ".pdf", "application/pdf" },   { ".png", "image/png" },
        { ".svg", "image/svg+xml" },     { ".webp", "image/webp" },       { ".xml", "application/xml" },
        { ".yaml", "application/yaml" }, { ".yml", "application/yaml" },  { ".zip", "application/zip" },
        { ".gz", "application/gzip" },   { ".tar", "application/x-tar" }, { ".js", "text/javascript" },
        { ".py", "text/x-python" },
    };
    size_t len = strlen(name);

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        size_t n = strlen(types[i].suffix);

        if (len > n && strcasecmp(name + len - n, types[i].suffix) == 0)
            return types[i].type;
    }
    return is_text ? "text/plain" : "application/octet-stream";
}

static uint64_t output_files_image_bytes(const struct tool_answer *a)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < a->nimages; i++)
        sum += strlen(a->images[i].data);
    return sum;
}

static void output_file_add_image(struct tool_answer *a, const char *type, const json_t *coded, struct buf *lines)
{
    size_t len = json_string_length(coded);
    bool shown = str_eq(type, "image/png") || str_eq(type, "image/jpeg") || str_eq(type, "image/gif") ||
                 str_eq(type, "image/webp");

    if (!shown || !coded || a->nimages == TOOL_IMAGES_MAX || output_files_image_bytes(a) + len > TOOL_IMAGES_BYTES)
        return;
    tool_answer_add_image(a, type, json_string_value(coded), len);
    buf_addf(lines, ", image %zu", a->nimages);
}

json_t *tool_output_files_make(struct tool_answer *a, const json_t *files, struct buf *lines)
{
    json_t *all = json_array();
    const json_t *file;
    size_t i;

    json_array_foreach(files, i, file)
    {
        const char *name = json_string_value(json_object_get(file, "path"));
        json_t *text = json_object_get(file, "content"), *coded = json_object_get(file, "contentBase64");
        const char *type = output_file_type(name, text != NULL);
        json_int_t size = json_integer_value(json_object_get(file, "sizeBytes"));
        json_t *one = json_pack("{s:s,s:s,s:I}", "name", name, "mime_type", type, "size", size);

        json_object_set(one, text ? "content" : "content_base64", text ? text : coded);
        json_array_append_new(all, one);
        buf_addf(lines, "%s%s (%s, %lld bytes", lines->len ? "\n" : "", name, type, (long long)size);
        output_file_add_image(a, type, coded, lines);
        buf_adds(lines, ")");
    }
    return all;
}

json_t *tool_output_files_omitted(const json_t *omitted, struct buf *lines)
{
    json_t *all = json_array();
    const json_t *file;
    size_t i;

    json_array_foreach(omitted, i, file)
    {
        const char *name = json_string_value(json_object_get(file, "path"));
        const char *reason = json_string_value(json_object_get(file, "reason"));

        json_array_append_new(all, json_pack("{s:s,s:s}", "name", name, "reason", reason));
        buf_addf(lines, "%s%s: left out: %s", lines->len ? "\n" : "", name, reason);
    }
    return all;
}
