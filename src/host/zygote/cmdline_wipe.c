/* The kernel reads cmdline and environ from the memory of the process, at addresses that it shows
 * in stat. Changing these addresses needs a privilege; overwriting the memory does not. The text is
 * therefore overwritten with zero bytes, and only its length stays visible. */
#include "host/zygote/cmdline_wipe.h"

#include "core/base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#define FIRST_FIELD 3 /* the field after the name, which may contain any character */
#define ARG_START 48

static int cmdline_find_memory(uintptr_t ret[4])
{
    char text[2048];

    if (fd_get_at(AT_FDCWD, "/proc/self/stat", text, sizeof(text)) < 0)
        return -1;
    const char *p = strrchr(text, ')');
    for (int field = FIRST_FIELD - 1; p && field < ARG_START; field++)
        p = strchr(p + 1, ' ');
    for (size_t i = 0; p && i < 4; i++) {
        char *end;

        ret[i] = strtoull(p + 1, &end, 10);
        p = *end == ' ' ? end : NULL;
    }
    errno = EPROTO;
    return p && ret[0] && ret[0] < ret[1] && ret[2] && ret[2] <= ret[3] ? 0 : -1;
}

int cmdline_wipe(size_t keep, struct err *err)
{
    uintptr_t at[4]; /* start and end of arguments, start and end of environment */

    if (cmdline_find_memory(at) < 0)
        return err_sys(err, ERR_SYS, "/proc/self/stat");
    for (char *arg = (char *)at[0], *end = (char *)at[1]; arg < end; arg++) {
        if (keep == 0)
            *arg = '\0';
        else
            keep -= *arg == '\0';
    }
    memset((void *)at[2], 0, at[3] - at[2]);
    return 0;
}
