/* start NODE KERNEL - executes Node with the kernel, from its start-up snapshot if that is valid.
 *
 * A snapshot is valid for one build of Node only, and the Node of a sandbox may differ from the one
 * that cove was built with: the host's Node was upgraded, or the package was built elsewhere. Node
 * would exit with a message, or crash. `kernel.fits` next to this program has size and modification
 * time of every file that the snapshot depends on. They are compared here, inside the sandbox,
 * against the files that will be used. If they differ, the kernel starts from its source and gives
 * the reason in its first event.
 *
 * It is a separate static program, because it costs a tenth of a millisecond, and a shell ten times
 * that. */
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

static const char *unused_snapshot_reason; /* why the snapshot is not used; "": by request; NULL: it is used */

/* The path of a file next to this program, which is called by its full path. */
static const char *path_beside_program(const char *self, const char *name, char *path, size_t cap)
{
    const char *slash = strrchr(self, '/');
    int n = snprintf(path, cap, "%.*s%s", slash ? (int)(slash - self) + 1 : 0, self, name);

    return n > 0 && (size_t)n < cap ? path : "";
}

/* Reads a small file as a whole; false if it is missing or too large. */
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

/* The first file is Node itself, and is checked at the path given as NODE. */
static const char *snapshot_misfit(char *text, const char *node)
{
    char *at = text, *line = strsep(&at, "\n");
    bool first = true;

    if (strncmp(line, "made ", 5) != 0)
        return strncmp(line, "none ", 5) == 0 ? line + 5 : "the description of the snapshot cannot be read";
    while ((line = strsep(&at, "\n")) != NULL && *line) {
        if (!file_is_unchanged(line, first ? node : NULL))
            return "this Node differs from the one that made the snapshot";
        first = false;
    }
    return first ? "the description of the snapshot is incomplete" : NULL;
}

int main(int argc, char **argv)
{
    static char fits[4096], place[4096], blob[4096];

    if (argc != 3) {
        fprintf(stderr, "usage: start NODE KERNEL\n");
        return 2;
    }
    if (getenv("NODE_OPTIONS"))
        unused_snapshot_reason = ""; /* options can make a snapshot invalid, and Node then refuses it */
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
