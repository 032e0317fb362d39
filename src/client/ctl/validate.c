/* cove validate: checks code on a server without running it. */
#include "client/ctl/ctl_internal.h"

#include "core/base/str.h"

#include <stdio.h>

#define EXIT_REFUSED 1

/* All texts of the server are printed without control characters. */
static void ctl_validate_print_line(const char *before, const char *text, const char *after)
{
    auto_free char *clean = str_dup(text);

    str_strip_control_chars(clean);
    printf("%s%s%s\n", before, clean, after);
}

static void ctl_validate_print_violation(const json_t *v)
{
    auto_free char *place = str_printf("line %" PRIu64 ": %s: %s: ", ctl_field_number(v, "line"),
                                       ctl_field_text(v, "severity"), ctl_field_text(v, "type"));

    str_strip_control_chars(place);
    ctl_validate_print_line(place, ctl_field_text(v, "description"), "");
    ctl_validate_print_line("    ", ctl_field_text(v, "recommendation"), "");
}

static void ctl_validate_print(const json_t *report)
{
    const json_t *violations = json_object_get(report, "violations"), *safe = json_object_get(report, "isSafe");
    const char *alternative = ctl_field_text(report, "safeAlternative");

    for (size_t i = 0; i < json_array_size(violations); i++)
        ctl_validate_print_violation(json_array_get(violations, i));
    if (*alternative)
        ctl_validate_print_line("safe alternative: ", alternative, "");
    if (json_is_boolean(safe))
        ctl_validate_print_line(json_is_true(safe) ? "allowed in tier simple, risk " : "refused in tier simple, risk ",
                                ctl_field_text(report, "risk"), "");
    else
        ctl_validate_print_line(json_array_size(violations) ? "not valid " : "valid ",
                                ctl_field_text(report, "language"), "");
}

int ctl_validate(struct ctl *c, struct err *err)
{
    AUTO_JSON *body = json_object(), *answer = NULL;

    if (c->args.nrest > 1)
        return err_set(err, ERR_USAGE, "'cove validate' takes one FILE or -c CODE");
    ctl_set_text(c, OPT_RUNTIME, body, "language");
    ctl_set_text(c, OPT_TEMPLATE, body, "template");
    if (ctl_put_code(c, c->args.nrest ? c->args.rest[0] : NULL, body, err) < 0)
        return -1;
    auto_free char *text = json_dumps(body, JSON_COMPACT);
    if (client_json(c->client, "POST", "/v1/validate", text, &answer, err) < 0)
        return -1;
    if (c->json && ctl_print_json(answer) < 0)
        return -1;
    if (!c->json)
        ctl_validate_print(answer);
    bool refused = json_is_false(json_object_get(answer, "isSafe")) ||
                   (json_is_null(json_object_get(answer, "isSafe")) &&
                    json_array_size(json_object_get(answer, "violations")) > 0);
    return refused ? EXIT_REFUSED : 0;
}
