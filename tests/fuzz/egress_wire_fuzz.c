/* Packets between the egress proxy and its clients: the frame, then every decoder of egress.h that
 * its type selects. */
#include "tests/support/messages.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    messages_attack(data, size, MESSAGE_EGRESS);
    return 0;
}
