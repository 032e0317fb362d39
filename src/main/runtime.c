/* cove-runtime - PID 1 of a sandbox. Its one socket is descriptor 3. With the id of the sandbox as
 * its first argument, it raises the last walls itself (core/wire/boot_file.h). */
#include "core/wire/early_error.h"
#include "inside/runtime/runtime.h"
#include "inside/runtime/runtime_boot.h"

#define CONTROL_FD 3

int main(int argc, char **argv)
{
    struct err err = { 0 };

    if (argc > 1 && runtime_boot(argv[1], argv + 2, &err) < 0) {
        early_error_send(CONTROL_FD, &err);
        return 1;
    }
    return runtime_serve(CONTROL_FD);
}
