/* Answers of the user's systemd. A message is read up to its own length, whatever follows, and
 * an error's name ends within its buffer. */
#include "core/base/mem.h"
#include "host/systemd/userbus.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char why[128];

    if (size < 16)
        return 0;
    size_t len = userbus_message_length(data);
    if (len > USERBUS_ANSWER_MAX || (len && len < 16))
        abort();
    /* In a buffer of exactly its size, so that a read past its end is detected. */
    auto_free uint8_t *msg = mem_alloc(size);
    memcpy(msg, data, size);
    memset(why, 'x', sizeof(why));
    enum userbus_answer a = userbus_decode_reply(msg, size, 2, why);
    if (size != len && a != USERBUS_MALFORMED)
        abort();
    if (a == USERBUS_REFUSED && !memchr(why, '\0', sizeof(why)))
        abort();
    return 0;
}
