/* replay.c - main() of a fuzz target without a fuzzer: runs the given files and directories
 * through the target, one TAP line for each file. So every input that ever broke a target is
 * tried again with any compiler. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int count;

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    struct stat st;
    uint8_t *data;

    if (!f || fstat(fileno(f), &st) < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(1);
    }
    /* Exactly as large as the input, so that the sanitizer sees a read past its end. */
    data = malloc(st.st_size > 0 ? (size_t)st.st_size : 1);
    if (!data || fread(data, 1, (size_t)st.st_size, f) != (size_t)st.st_size) {
        fprintf(stderr, "%s: cannot be read\n", path);
        exit(1);
    }
    fclose(f);
    LLVMFuzzerTestOneInput(data, (size_t)st.st_size);
    free(data);
    printf("ok %d - %s\n", ++count, strrchr(path, '/') ? strrchr(path, '/') + 1 : path);
    fflush(stdout); /* so that a crash does not lose the lines before it */
    return 0;
}

static void run_directory(const char *path)
{
    struct dirent **names;
    int n = scandir(path, &names, NULL, alphasort);

    if (n < 0) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        exit(1);
    }
    for (int i = 0; i < n; i++) {
        char file[4096];

        if (names[i]->d_name[0] != '.') {
            snprintf(file, sizeof file, "%s/%s", path, names[i]->d_name);
            run_file(file);
        }
        free(names[i]);
    }
    free(names);
}

int main(int argc, char **argv)
{
    LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    printf("ok %d - the empty input\n", ++count);
    for (int i = 1; i < argc; i++) {
        struct stat st;

        if (stat(argv[i], &st) == 0 && S_ISDIR(st.st_mode))
            run_directory(argv[i]);
        else
            run_file(argv[i]);
    }
    printf("1..%d\n", count);
    return 0;
}
