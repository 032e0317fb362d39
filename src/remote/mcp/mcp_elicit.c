/* The schema is flat by its specification: properties of an object, each a string, number, boolean
 * or list of strings. A default of another type than its property is not sent. */
#include "remote/mcp/mcp_elicit.h"

#include "core/base/str.h"

static bool mcp_elicit_has_type(const json_t *value, const char *type)
{
    if (!type)
        return json_is_string(value);
    if (str_eq(type, "string"))
        return json_is_string(value);
    if (str_eq(type, "integer"))
        return json_is_integer(value);
    if (str_eq(type, "number"))
        return json_is_number(value);
    if (str_eq(type, "boolean"))
        return json_is_boolean(value);
    return str_eq(type, "array") && json_is_array(value);
}

static bool mcp_elicit_is_in_enum(const json_t *property, const json_t *value)
{
    const json_t *words = json_object_get(property, "enum"), *word;
    size_t i;

    if (!json_is_array(words))
        return true;
    json_array_foreach(words, i, word) if (json_equal(word, value)) return true;
    return false;
}

static bool mcp_elicit_is_required(const json_t *schema, const char *name)
{
    const json_t *word;
    size_t i;

    json_array_foreach(json_object_get(schema, "required"), i,
                       word) if (json_is_string(word) && str_eq(json_string_value(word), name)) return true;
    return false;
}

int mcp_elicit_defaults(const json_t *params, json_t **ret, struct err *err)
{
    const json_t *schema = json_object_get(params, "requestedSchema"), *property;
    json_t *properties = json_object_get(schema, "properties");
    json_t *content = json_object();
    const char *name;

    json_object_foreach(properties, name, property)
    {
        json_t *value = json_object_get(property, "default");

        if (value && mcp_elicit_has_type(value, json_string_value(json_object_get(property, "type"))) &&
            mcp_elicit_is_in_enum(property, value)) {
            json_object_set(content, name, value);
        } else if (mcp_elicit_is_required(schema, name)) {
            json_decref(content);
            err_set(err, ERR_INVALID, "'%.60s': the server requires a value and gives no default", name);
            if (err)
                str_strip_control_chars(err->msg);
            return -1;
        }
    }
    *ret = content;
    return 0;
}
