/* start NODE KERNEL - becomes Node with the kernel, from its start-up snapshot where that fits.
 *
 * A snapshot is for one build of Node only, and the Node of a sandbox may be another than the one that cove was built
 * with: the host's was upgraded, or the package came from elsewhere. Node would end with a message, or crash.
 * `kernel.fits` beside this program has size and time of change of every file that the snapshot depends on; they are
 * compared here, inside, where the files are that will be used. What does not fit is not used: the kernel starts from
 * its source, and says why in its first event.
 *
 * A program of its own, static, because it costs a tenth of a millisecond and a shell would cost ten times that. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NS_PER_S 1000000000ll

static const char *unused_snapshot_reason; /* the snapshot is not used; "": because that was asked for; NULL: it is */

/* The place of a file beside this program, which is called by its whole path. */
static const char *path_beside_program(const char *self, const char *name, char *path, size_t cap)
{
    const char *slash = strrchr(self, '/');
    int n = snprintf(path, cap, "%.*s%s", slash ? (int)(slash - self) + 1 : 0, self, name);

    return n > 0 && (size_t)n < cap ? path : "";
}

/* The whole of a small file; false when it is none. */
static bool read_small_file(const char *path, char *text, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, cap - 1);

    if (fd >= 0)
        close(fd);
    if (n <= 0 || (size_t)n == cap - 1)
        return false;
    text[n] = '\0';
    return true;
}

/* A line "SIZE NANOSECONDS PATH". */
static bool file_is_unchanged(char *line, const char *instead)
{
    struct stat st;
    char *end;
    long long size = strtoll(line, &end, 10);
    long long changed = strtoll(end, &end, 10);

    if (*end != ' ' || stat(instead ? instead : end + 1, &st) < 0)
        return false;
    return st.st_size == size && (long long)st.st_mtim.tv_sec * NS_PER_S + st.st_mtim.tv_nsec == changed;
}

/* The first file is Node itself, and is looked at where this one is called from. */
static const char *snapshot_misfit(char *text, const char *node)
{
    char *at = text, *line = strsep(&at, "\n");
    bool first = true;

    if (strncmp(line, "made ", 5) != 0)
        return strncmp(line, "none ", 5) == 0 ? line + 5 : "what the snapshot was made with cannot be read";
    while ((line = strsep(&at, "\n")) != NULL && *line) {
        if (!file_is_unchanged(line, first ? node : NULL))
            return "this Node is another one than the snapshot was made with";
        first = false;
    }
    return first ? "what the snapshot was made with is not known" : NULL;
}

int main(int argc, char **argv)
{
    static char fits[4096], place[4096], blob[4096];

    if (argc != 3) {
        fprintf(stderr, "usage: start NODE KERNEL\n");
        return 2;
    }
    if (getenv("NODE_OPTIONS"))
        unused_snapshot_reason = ""; /* options can change what a snapshot means, and Node refuses it then */
    else if (!read_small_file(path_beside_program(argv[0], "kernel.fits", place, sizeof(place)), fits, sizeof(fits)))
        unused_snapshot_reason = "no snapshot was made when cove was built";
    else
        unused_snapshot_reason = snapshot_misfit(fits, argv[1]);
    if (!unused_snapshot_reason && access(path_beside_program(argv[0], "kernel.blob", blob, sizeof(blob)), R_OK) < 0)
        unused_snapshot_reason = "the snapshot cannot be read";

    char *from_snapshot[] = { argv[1], "--snapshot-blob", blob, argv[2], NULL };
    char *from_source[] = { argv[1], argv[2],
                            unused_snapshot_reason && *unused_snapshot_reason ? (char *)unused_snapshot_reason : NULL,
                            NULL };
    execv(argv[1], unused_snapshot_reason ? from_source : from_snapshot);
    fprintf(stderr, "%s: %s\n", argv[1], strerror(errno));
    return 127;
}
