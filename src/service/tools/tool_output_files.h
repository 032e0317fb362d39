/* tool_output_files.h - files in the result of a tool. */
#pragma once

#include "service/tools/tool_internal.h"

/* Makes the list output_files, [{name, mime_type, size, content or content_base64}], of the list
 * `files` of tool_collect.h or of a run. Adds images among them to the images of the answer, and a
 * line for each file to *lines. The caller owns the list. */
json_t *tool_output_files_make(struct tool_answer *a, const json_t *files, struct buf *lines);
/* The list [{name, reason}] of `omitted`, and its lines. */
json_t *tool_output_files_omitted(const json_t *omitted, struct buf *lines);

/* Members of a schema. */
#define TOOL_OUTPUT_FILES_SCHEMA                                                                               \
    "\"output_files\": {\"type\": \"array\", \"items\": {\"type\": \"object\", \"properties\": {"              \
    "\"name\": {\"type\": \"string\", \"description\": \"Its path, relative to /workspace if it is there.\"}," \
    "\"mime_type\": {\"type\": \"string\"}, \"size\": {\"type\": \"integer\"},"                                \
    "\"content\": {\"type\": \"string\", \"description\": \"Of text.\"},"                                      \
    "\"content_base64\": {\"type\": \"string\", \"description\": \"Of other files.\"}},"                       \
    "\"required\": [\"name\", \"mime_type\", \"size\"]}},"                                                     \
    "\"omitted\": {\"type\": \"array\", \"items\": {\"type\": \"object\", \"properties\": {"                   \
    "\"name\": {\"type\": \"string\"}, \"reason\": {\"type\": \"string\"}}, \"required\": [\"name\", \"reason\"]}}"
