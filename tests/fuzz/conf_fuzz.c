/* The server's configuration: any bytes give a configuration or a reason, and an accepted one is
 * printed as a file that is accepted again. */
#include "main/conf/conf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct problems pr;
    struct conf c, again;
    struct buf out = { 0 };

    pr = (struct problems){ .file = "f" };
    conf_init(&c);
    conf_init(&again);
    if (conf_read(&c, (const char *)data, size, &pr) < 0) {
        if (pr.n == 0)
            abort();
        problems_print(&pr, &out);
    } else {
        conf_print(&c, &out);
        if (conf_read(&again, out.data, out.len, &pr) < 0)
            abort();
    }
    buf_done(&out);
    conf_done(&c);
    conf_done(&again);
    return 0;
}
