/* jansson parses; this file adds the checks that it lacks. Depth is limited before parsing, because
 * jansson's own limit is large and cannot be set. Strings are measured in bytes after parsing. */
#include "core/doc/json_input.h"

#include "core/base/buf.h"
#include "core/base/str.h"
#include "core/base/suggest.h"

#define ENUM_VALUES_LISTED 8u
#define DOUBLE_EXACT_MAX 9007199254740992.0 /* 2^53: larger doubles skip integers */

bool json_input_within_limits(const char *text, size_t len, unsigned deep_max, size_t heavy_max)
{
    unsigned depth = 0;
    size_t heavy = 0;
    bool quoted = false;

    for (size_t i = 0; i < len; i++) {
        char c = text[i];

        if (quoted && c == '\\') {
            i++;
        } else if (c == '"') {
            quoted = !quoted;
        } else if (!quoted && (c == '{' || c == '[')) {
            depth++;
            heavy += JSON_INPUT_CONTAINER_WEIGHT;
        } else if (!quoted && (c == '}' || c == ']') && depth > 0) {
            depth--;
        } else if (!quoted && c == ',') {
            heavy++;
        }
        if (depth > deep_max || heavy > heavy_max)
            return false;
    }
    return true;
}

int json_input_parse(const char *text, size_t len, json_t **ret, struct err *err)
{
    json_error_t why;

    if (len > JSON_INPUT_SIZE_MAX)
        return err_set(err, ERR_INVALID, "the body has %zu bytes, the maximum is %u", len, JSON_INPUT_SIZE_MAX);
    if (len == 0)
        return err_set(err, ERR_INVALID, "the body is empty; it must be a JSON object");
    if (!json_input_within_limits(text, len, JSON_INPUT_DEPTH_MAX, SIZE_MAX))
        return err_set(err, ERR_INVALID, "the body is nested deeper than %d levels", JSON_INPUT_DEPTH_MAX);
    if (!json_input_within_limits(text, len, JSON_INPUT_DEPTH_MAX, JSON_INPUT_WEIGHT_MAX))
        return err_set(err, ERR_INVALID, "the body has more than %u values", JSON_INPUT_WEIGHT_MAX);
    json_t *root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (!root) {
        err_set(err, ERR_INVALID, "the body is not JSON: line %d, column %d: %.120s", why.line, why.column, why.text);
        err_sanitize(err);
        return -1;
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return err_set(err, ERR_INVALID, "the body must be a JSON object");
    }
    *ret = root;
    return 0;
}

static int json_input_type_error(const char *path, const char *name, const char *what, struct err *err)
{
    return err_set(err, ERR_INVALID, "%s%s: must be %s", path, name, what);
}

static int json_input_unknown_field_error(const char *path, const char *key, const char *near, const char *const *names,
                                          struct err *err)
{
    auto_buf all = { 0 };

    for (size_t i = 0; names[i]; i++)
        buf_addf(&all, "%s%s", i == 0 ? "" : names[i + 1] ? ", " : " and ", names[i]);
    if (near)
        err_set(err, ERR_INVALID, "%s%.60s: unknown field; did you mean %s?", path, key, near);
    else if (all.len)
        err_set(err, ERR_INVALID, "%s%.40s: unknown field; known fields are %s", path, key, all.data);
    else
        err_set(err, ERR_INVALID, "%s%.60s: unknown field; this object takes no fields", path, key);
    err_sanitize(err);
    return -1;
}

int json_input_require_known_fields(const json_t *object, const char *path, const char *const *names, struct err *err)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)object, key, value)
    {
        struct suggest s;
        bool known = false;

        suggest_init(&s, key);
        for (size_t i = 0; names[i] && !known; i++) {
            known = str_eq(key, names[i]);
            suggest_offer(&s, names[i]);
        }
        if (known)
            continue;
        return json_input_unknown_field_error(path, key, s.best, names, err);
    }
    return 0;
}

/* 1.0 and 1e3 are integers too, if a double holds them exactly. */
static bool json_input_whole_number(const json_t *v, json_int_t *ret)
{
    if (json_is_integer(v)) {
        *ret = json_integer_value(v);
        return true;
    }
    double d = json_is_real(v) ? json_real_value(v) : 0.5;
    if (d < -DOUBLE_EXACT_MAX || d > DOUBLE_EXACT_MAX || d != (double)(json_int_t)d)
        return false;
    *ret = (json_int_t)d;
    return true;
}

int json_input_u64(const json_t *object, const char *path, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
                   bool *ret_found, struct err *err)
{
    const json_t *v = json_object_get(object, name);

    if (ret_found)
        *ret_found = v != NULL;
    if (!v)
        return 0;
    json_int_t n;
    if (!json_input_whole_number(v, &n))
        return json_input_type_error(path, name, "a whole number", err);
    if (n < 0 || (uint64_t)n < min || (uint64_t)n > max)
        return err_set(err, ERR_INVALID, "%s%s: %lld is not between %" PRIu64 " and %" PRIu64, path, name, (long long)n,
                       min, max);
    *ret = (uint64_t)n;
    return 0;
}

int json_input_bool(const json_t *object, const char *path, const char *name, bool *ret, struct err *err)
{
    const json_t *v = json_object_get(object, name);

    if (!v)
        return 0;
    if (!json_is_boolean(v))
        return json_input_type_error(path, name, "true or false", err);
    *ret = json_is_true(v);
    return 0;
}

int json_input_text(const json_t *object, const char *path, const char *name, size_t min, size_t max, const char **ret,
                    struct err *err)
{
    const json_t *v = json_object_get(object, name);

    if (!v)
        return 0;
    if (!json_is_string(v))
        return json_input_type_error(path, name, "a string", err);
    size_t len = json_string_length(v);
    if (len < min || len > max)
        return err_set(err, ERR_INVALID, "%s%s: has %zu bytes, must have %zu to %zu", path, name, len, min, max);
    *ret = json_string_value(v);
    return 0;
}

/* Without a similar value, lists the values if they are few. */
static void json_input_enum_error(const char *const *words, const char *similar, const char *path, const char *name,
                                  const char *text, struct err *err)
{
    auto_buf values = { 0 };
    unsigned n = 0;

    for (; n <= ENUM_VALUES_LISTED && words[n]; n++)
        buf_addf(&values, "%s%s", n == 0 ? "; use " : words[n + 1] ? ", " : " or ", words[n]);
    if (similar)
        err_set(err, ERR_INVALID, "%s%s: '%.40s' is not a valid value; did you mean %s?", path, name, text, similar);
    else
        err_set(err, ERR_INVALID, "%s%s: '%.40s' is not a valid value%s", path, name, text,
                n > 0 && n <= ENUM_VALUES_LISTED ? values.data : "");
}

int json_input_enum(const json_t *object, const char *path, const char *name, const char *const *words, unsigned *ret,
                    struct err *err)
{
    const char *text = NULL;
    struct suggest s;

    if (json_input_text(object, path, name, 0, 1000, &text, err) < 0)
        return -1;
    if (!text)
        return 0;
    suggest_init(&s, text);
    for (unsigned i = 0; words[i]; i++) {
        if (str_eq(text, words[i])) {
            *ret = i;
            return 0;
        }
        suggest_offer(&s, words[i]);
    }
    json_input_enum_error(words, s.best, path, name, text, err);
    err_sanitize(err);
    return -1;
}

int json_input_object(const json_t *object, const char *path, const char *name, json_t **ret, struct err *err)
{
    json_t *v = json_object_get(object, name);

    if (!v)
        return 0;
    if (!json_is_object(v))
        return json_input_type_error(path, name, "an object", err);
    *ret = v;
    return 0;
}

int json_input_array(const json_t *object, const char *path, const char *name, size_t max, json_t **ret,
                     struct err *err)
{
    json_t *v = json_object_get(object, name);

    if (!v)
        return 0;
    if (!json_is_array(v))
        return json_input_type_error(path, name, "a list", err);
    if (json_array_size(v) > max)
        return err_set(err, ERR_INVALID, "%s%s: has %zu entries, the maximum is %zu", path, name, json_array_size(v),
                       max);
    *ret = v;
    return 0;
}
