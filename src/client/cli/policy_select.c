/* A built-in policy needs no file and no helper, so policies cost an ordinary run nothing.
 * cove-policy is started only for a policy file, or if the operator has set limits. */
#include "client/cli/policy_select.h"

#include "core/base/fd.h"

#include <errno.h>

static bool policy_select_has_operator_limits(void)
{
    const char *more = getenv(OPERATOR_LIMITS_VARIABLE);

    return (more && *more) || access(OPERATOR_LIMITS_FILE, F_OK) == 0 || errno != ENOENT;
}

int policy_select(const struct args *a, const struct cli_settings *settings, struct policy *ret,
                  struct operator_limits *ret_floor, struct err *err)
{
    const struct arg *said = args_find(a, OPT_POLICY);
    const char *name = said ? said->value : "standard";
    bool json = args_find(a, OPT_JSON) != NULL;
    auto_buf out = { 0 };

    *ret_floor = (struct operator_limits){ 0 };
    if (!*name)
        return err_set(err, ERR_USAGE, "--policy: empty; give the name of a built-in policy or a file");
    if (policy_builtin(name, ret) && !policy_select_has_operator_limits())
        return 0;
    int rc = settings->compile_policy(name, json, &out, err);
    if (rc > 0 && out.len) /* the errors as JSON */
        (void)fd_write_all(STDOUT_FILENO, out.data, out.len);
    if (rc != 0)
        return rc;
    return canon_parse(out.data ? out.data : "", out.len, ret, ret_floor, err);
}
