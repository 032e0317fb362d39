/* Packets between the jailer and its client: the frame, then every decoder of jail.h that its
 * type selects. */
#include "tests/support/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    messages_attack(data, size, MESSAGE_JAIL);
    return 0;
}
