#include "client/cli/state_dir.h"

#include <stdio.h>
#include <unistd.h>

const char *state_dir(const char *flag, char buf[STATE_DIR_MAX])
{
    const char *env = getenv("COVE_STATE_DIR");
    const char *xdg = getenv("XDG_RUNTIME_DIR");

    if (flag)
        return flag;
    if (env && env[0] == '/')
        return env;
    if (geteuid() == 0)
        return "/run/cove";
    if (xdg && xdg[0] == '/' && strlen(xdg) < STATE_DIR_MAX - 6)
        snprintf(buf, STATE_DIR_MAX, "%s/cove", xdg);
    else
        snprintf(buf, STATE_DIR_MAX, "/tmp/cove-%u", (unsigned)geteuid());
    return buf;
}
