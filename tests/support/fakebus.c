#include "fakebus.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "host/systemd/userbus.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

size_t fakebus_answer(uint8_t buf[FAKEBUS_ANSWER_MAX], uint8_t kind, uint8_t serial, const char *error)
{
    static const uint8_t head[] = { 'l', 0, 1, 1, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 5, 1, 'u', 0, 0, 0, 0, 0 };
    size_t n = sizeof(head), end = n;

    memset(buf, 0, FAKEBUS_ANSWER_MAX);
    memcpy(buf, head, n);
    buf[1] = kind;
    buf[20] = serial;
    if (error) {
        memcpy(buf + n, (uint8_t[]){ 4, 1, 's', 0, (uint8_t)strlen(error) }, 5);
        memcpy(buf + n + 8, error, strlen(error));
        end = n + 8 + strlen(error) + 1;
    }
    buf[12] = (uint8_t)(end - 16);
    return (end + 7) / 8 * 8;
}

int fakebus_listen(const char *dir, const char *name)
{
    struct sockaddr_un sa = { .sun_family = AF_UNIX };
    auto_fd int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%s", dir, name);
    unlink(sa.sun_path);
    if (fd < 0 || bind(fd, (struct sockaddr *)&sa, sizeof(sa)) < 0 || listen(fd, 4) < 0)
        return -1;
    return take_fd(&fd);
}

static void read_line(int fd, char *line, size_t cap)
{
    size_t n = 0;

    while (n + 1 < cap && read(fd, line + n, 1) == 1 && line[n++] != '\n')
        ;
    line[n] = '\0';
}

bool fakebus_greet(int fd, bool let_in)
{
    const char *says = let_in ? "OK 0123\r\n" : "REJECTED\r\n";
    char line[128];

    if (read(fd, line, 1) != 1 || line[0] != '\0')
        return false;
    read_line(fd, line, sizeof(line));
    if (!str_eq(line, "AUTH EXTERNAL 31303030\r\n") || write(fd, says, strlen(says)) != (ssize_t)strlen(says))
        return false;
    read_line(fd, line, sizeof(line));
    return let_in && str_eq(line, "BEGIN\r\n");
}

size_t fakebus_read_call(int fd, uint8_t *msg, size_t cap)
{
    if (fd_read_full(fd, msg, 16) != 16)
        return 0;
    size_t len = userbus_message_length(msg);
    return len && len <= cap && fd_read_full(fd, msg + 16, len - 16) == (ssize_t)(len - 16) ? len : 0;
}
