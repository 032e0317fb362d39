/* cove-runtime - PID 1 of a sandbox. Its one socket is descriptor 3. */
#include "inside/runtime/runtime.h"

#define CONTROL_FD 3

int main(void)
{
    return runtime_serve(CONTROL_FD);
}
