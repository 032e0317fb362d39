/* cove-probe walls|uid|limits|memory|burn|shout|rates|egress [NAME=VALUE...] - attacks the sandbox
 * that it runs in and prints the results. Only `cove doctor` uses it: it binds the program into a
 * sandbox, starts it and reads the results. */
#include "inside/doctor/attack.h"

#include "core/base/str.h"

#include <stdio.h>

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    size_t n = 0;
    struct attack *a = NULL;

    if (access("/.cove", F_OK) < 0) { /* outside of a sandbox it would only consume resources of the host */
        fputs("cove-probe: attacks the sandbox that it runs in, but this is not a sandbox; use cove doctor\n", stderr);
        return 2;
    }
    attack_set_args(argc - 1, argv + 1);
    if (str_eq(what, "memory"))
        attack_memory();
    else if (str_eq(what, "burn"))
        attack_cpu();
    else if (str_eq(what, "shout"))
        attack_output();
    else if (str_eq(what, "rates"))
        attack_io_rates();
    else if (str_eq(what, "uid"))
        a = attack_find_wall("unique_uid", &n);
    else if (str_eq(what, "egress"))
        a = attack_egress(&n);
    else
        a = str_eq(what, "limits") ? attack_limits(&n) : attack_walls(&n);
    for (size_t i = 0; i < n; i++)
        attack_run(&a[i]);
    return 0;
}
