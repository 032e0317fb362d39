/* The known names of the arguments of a tool, and the required ones, are in its input_schema only,
 * so a schema that a client reads and the check of a call cannot disagree about them. Types and
 * ranges are checked by the readers of core/doc/json_input.h and stated again in the schema. */
#include "service/tools/tool_internal.h"

#include "core/base/mem.h"
#include "core/base/str.h"
#include "policy/limits.h"
#include "service/custom_policy.h"
#include "service/language_kernel.h"

#define NAMES_MAX 32u

int tool_arguments_check_names(const json_t *arguments, const json_t *schema, struct err *err)
{
    const json_t *required = json_object_get(schema, "required");
    const char *names[NAMES_MAX + 1] = { NULL };
    const char *key;
    json_t *value;
    size_t n = 0;

    json_object_foreach(json_object_get(schema, "properties"), key, value)
    {
        if (n < NAMES_MAX)
            names[n++] = key;
    }
    if (json_input_require_known_fields(arguments, "", names, err) < 0)
        return -1;
    for (size_t i = 0; i < json_array_size(required); i++) {
        const char *name = json_string_value(json_array_get(required, i));

        if (!json_object_get(arguments, name))
            return err_set(err, ERR_INVALID, "%s: required", name);
    }
    return 0;
}

int tool_arguments_path(const json_t *arguments, const char *name, const char *preset, char **ret, struct err *err)
{
    const char *path = preset;

    if (json_input_text(arguments, "", name, 1, TOOL_PATH_MAX, &path, err) < 0)
        return -1;
    if (!path)
        return err_set(err, ERR_INVALID, "%s: required", name);
    *ret = path[0] == '/' ? str_dup(path) : str_printf("/workspace/%s", path);
    return 0;
}

int tool_arguments_timeout(const struct tool_call *c, uint64_t *ret, struct err *err)
{
    const struct operator_limits *limits = c->tools->settings.operator_limits;
    const struct limit_info *wall = limit_info(LIMIT_WALL);
    uint64_t ms = 0;

    if (json_input_u64(c->request.arguments, "", "timeout_ms", wall->min, wall->max, &ms, NULL, err) < 0 ||
        custom_policy_check_operator_limit(limits, LIMIT_WALL, "timeout_ms", ms, err) < 0)
        return -1;
    if (!ms)
        ms = c->tools->settings.timeout_ms;
    *ret = custom_policy_check_operator_limit(limits, LIMIT_WALL, "timeout_ms", ms, NULL) < 0 ? 0 : ms;
    return 0;
}

int tool_arguments_language(const json_t *arguments, const char **ret, struct err *err)
{
    const char *name = NULL;

    if (json_input_text(arguments, "", "language", 1, 40, &name, err) < 0)
        return -1;
    if (!name)
        return 0;
    *ret = language_kernel_language(name);
    if (*ret)
        return 0;
    err_set(err, ERR_RUNTIME_MISSING, "language: unknown language '%.40s'; use python, node or bash", name);
    err_sanitize(err);
    return -1;
}
