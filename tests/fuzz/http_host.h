/* http_host.h - a server of src/server/http on its own socket, for targets that are its clients. */
#pragma once

#include "core/base/fd.h"
#include "server/http/server.h"

#include <stdio.h>
#include <sys/un.h>

static struct ev *loop;
static struct http_server *server;
static struct sockaddr_un server_at;

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void host_stop(void)
{
    http_server_free(server);
    ev_free(loop);
}

static void host_start(const struct http_settings *set)
{
    struct err err = { 0 };

    server_at.sun_family = AF_UNIX;
    snprintf(server_at.sun_path, sizeof(server_at.sun_path), "/tmp/cove-fuzz-%d", getpid());
    must(ev_new(&loop, &err) == 0 && http_server_new(loop, set, &server, &err) == 0 &&
         http_listen_unix(server, server_at.sun_path, 0600, &err) == 0);
    atexit(host_stop);
}

/* A client with a non-blocking socket. */
static int host_connect(void)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    must(fd >= 0 && connect(fd, (struct sockaddr *)&server_at, sizeof(server_at)) == 0);
    fd_nonblock(fd, true);
    return fd;
}

/* One iteration of the server's loop; its answers are read and discarded. */
static void host_turn(int fd, struct http_stats *ret)
{
    char answer[4096];

    ev_turn(loop, 0);
    while (read(fd, answer, sizeof(answer)) > 0)
        ;
    http_server_stats(server, ret);
}
