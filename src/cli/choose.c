/* A built-in policy needs no file and no helper, so an ordinary run pays nothing for there being policies. Only a file,
 * or a floor that the operator has set, makes us run cove-policy. */
#include "cli/choose.h"

#include "base/fd.h"

#include <errno.h>

static bool floor_set(void)
{
    const char *more = getenv(FLOOR_VARIABLE);

    return (more && *more) || access(FLOOR_FILE, F_OK) == 0 || errno != ENOENT;
}

int choose_policy(const struct args *a, const struct cli_settings *settings, struct policy *ret,
                  struct floor *ret_floor, struct err *err)
{
    const struct arg *said = args_find(a, OPT_POLICY);
    const char *name = said ? said->value : "standard";
    bool json = args_find(a, OPT_JSON) != NULL;
    auto_buf out = { 0 };

    *ret_floor = (struct floor){ 0 };
    if (!*name)
        return err_set(err, ERR_USAGE, "--policy needs the name of a built-in policy or of a file");
    if (policy_builtin(name, ret) && !floor_set())
        return 0;
    int rc = settings->compile_policy(name, json, &out, err);
    if (rc > 0 && out.len) /* errors as JSON */
        (void)fd_write_all(STDOUT_FILENO, out.data, out.len);
    if (rc != 0)
        return rc;
    return canon_parse(out.data ? out.data : "", out.len, ret, ret_floor, err);
}
