/* cove-ctl - the verbs of `cove` that talk to a server. */
#include "client/ctl/ctl.h"

int main(int argc, char **argv)
{
    return ctl_main(argc, argv);
}
