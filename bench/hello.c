/* bench-hello - the least that libmicrohttpd can do: one page from memory, one thread, the
 * library's own loop. It is the baseline for a server built on that library. Prints its port,
 * and ends with its standard input. */
#define _GNU_SOURCE 1
#include "common.h"

#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static enum MHD_Result answer(void *cls, struct MHD_Connection *conn, const char *url __attribute__((unused)),
                              const char *method __attribute__((unused)), const char *version __attribute__((unused)),
                              const char *data __attribute__((unused)), size_t *size __attribute__((unused)),
                              void **seen)
{
    if (!*seen) { /* the first call has the head only */
        *seen = conn;
        return MHD_YES;
    }
    return MHD_queue_response(conn, MHD_HTTP_OK, cls);
}

int main(void)
{
    static char body[] = "{\"status\":\"ok\",\"version\":\"0.0.0\"}";
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr = { htonl(INADDR_LOOPBACK) } };
    struct MHD_Response *page = MHD_create_response_from_buffer(strlen(body), body, MHD_RESPMEM_PERSISTENT);
    char byte;

    MHD_add_response_header(page, "Content-Type", "application/json");
    struct MHD_Daemon *d = MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL, NULL, answer, page,
                                            MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&at, MHD_OPTION_END);
    if (!d)
        die("the daemon does not start");
    printf("%u\n", MHD_get_daemon_info(d, MHD_DAEMON_INFO_BIND_PORT)->port);
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    MHD_stop_daemon(d);
    MHD_destroy_response(page);
    return 0;
}
