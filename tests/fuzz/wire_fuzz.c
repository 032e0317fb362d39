/* Packets between a runtime and its client: the frame, then every decoder of rt.h that its type
 * selects. */
#include "tests/support/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    messages_attack(data, size, MESSAGE_RT);
    return 0;
}
