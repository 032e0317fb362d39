#include "inside/runtime/stats.h"

#include "inside/runtime/runtime_exec.h"

#include <assert.h>
#include <sys/statvfs.h>

static void stats_filesystem_usage(const char *path, uint64_t *used, uint64_t *max, uint64_t *files,
                                   uint64_t *files_max)
{
    struct statvfs v;

    if (statvfs(path, &v) < 0)
        return; /* both stay 0: the path does not exist */
    *max = (uint64_t)v.f_blocks * v.f_frsize;
    *used = (uint64_t)(v.f_blocks - v.f_bfree) * v.f_frsize;
    *files_max = v.f_files;
    *files = v.f_files - v.f_ffree;
}

/* tmpfs hands out its last page before it refuses, so a tmpfs that refused a write and was not
 * changed since has no free page. */
uint32_t stats_full_filesystems(void)
{
    static const struct {
        const char *path;
        uint32_t bytes, inodes;
    } places[] = {
        { "/workspace", RT_FULL_WORKSPACE, RT_FULL_WORKSPACE_INODES },
        { "/tmp", RT_FULL_TMP, RT_FULL_TMP_INODES },
        { "/dev/shm", RT_FULL_SHM, RT_FULL_TMP_INODES },
    };
    uint32_t full = 0;

    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        uint64_t used = 0, max = 0, files = 0, files_max = 0;

        stats_filesystem_usage(places[i].path, &used, &max, &files, &files_max);
        full |= (max && used >= max ? places[i].bytes : 0) | (files_max && files >= files_max ? places[i].inodes : 0);
    }
    return full;
}

int stats_open(struct runtime *rt, struct runtime_stream *s, const struct frame *f, struct err *err)
{
    struct rt_stats m = { 0 };
    uint64_t tmp_files, tmp_files_max;

    if (f->len != 0)
        return err_set(err, ERR_PROTOCOL, "STATS has no payload");
    m.processes = procs_count();
    m.executions = runtime_exec_count(rt);
    stats_filesystem_usage("/workspace", &m.workspace_bytes, &m.workspace_bytes_max, &m.workspace_files,
                           &m.workspace_files_max);
    stats_filesystem_usage("/tmp", &m.tmp_bytes, &m.tmp_bytes_max, &tmp_files, &tmp_files_max);
    int n = rt_stats_encode(&m, runtime_scratch_buffer(), NULL);
    assert(n >= 0);
    runtime_stream_send_last(s, FRAME_DONE, runtime_scratch_buffer(), (size_t)n);
    return 0;
}
