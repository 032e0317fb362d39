/* The first bytes of a TLS connection from a program in a sandbox, as the egress proxy looks for a
 * host name in them.
 *
 * Checked in addition to memory errors: what was decided about the first bytes stays decided when
 * more arrive; a name is normalised and stands in the input; a malformed hello has a reason. */
#include "host/egress/client_hello.h"

#include "core/base/mem.h"
#include "core/base/str.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* Records may cut the name into pieces; so its letters are looked for in their order. */
static bool stands_in(const char *name, const uint8_t *data, size_t size)
{
    for (size_t i = 0; i < size && *name; i++)
        if ((data[i] | (data[i] >= 'A' && data[i] <= 'Z' ? 0x20 : 0)) == *name)
            name++;
    return !*name;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct client_hello hello = { 0 }, early = { 0 };
    struct err err = { 0 };
    enum client_hello_result result = client_hello_read(data, size, &hello, &err);

    must(result != CLIENT_HELLO_BAD || err.msg[0]);
    must(result != CLIENT_HELLO_MORE || size < CLIENT_HELLO_MAX);
    for (size_t n = 0; n < size; n += 1 + n / 8) {
        uint8_t *exact = n > 0 ? mem_copy(data, n) : NULL; /* so that the sanitizer sees a read past its end */
        enum client_hello_result before = client_hello_read(exact, n, &early, NULL);

        free(exact);
        must(before == CLIENT_HELLO_MORE || before == result);
        must(before != CLIENT_HELLO_READ || str_eq(early.name, hello.name));
    }
    if (result == CLIENT_HELLO_READ && hello.name[0]) {
        char again[HOSTNAME_MAX + 1];

        must(hostname_normalize(hello.name, strlen(hello.name), again, NULL) == 0 && str_eq(again, hello.name));
        must(stands_in(hello.name, data, size));
    }
    return 0;
}
