/* --receipt of exec and execute: the receipt is explained on standard error, or written to a file
 * as JSON, which `cove explain` reads. */
#include "client/ctl/ctl_internal.h"

#include "core/base/fd.h"
#include "core/base/str.h"
#include "client/cli/explain.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static int ctl_receipt_to_file(const char *path, const char *text, struct err *err)
{
    auto_fd int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    if (fd < 0 || fd_write_all(fd, text, strlen(text)) < 0 || fd_write_all(fd, "\n", 1) < 0)
        return err_sys(err, errno == ENOSPC ? ERR_DISK_FULL : ERR_INVALID, "--receipt=%.120s", path);
    return 0;
}

int ctl_receipt_write(const struct ctl *c, const json_t *receipt, struct err *err)
{
    const struct arg *wanted = args_find(&c->args, OPT_RECEIPT);
    auto_buf in = { 0 }, out = { 0 };

    if (!wanted || !json_object_size(receipt))
        return 0;
    auto_free char *text = json_dumps(receipt, JSON_PRESERVE_ORDER | JSON_INDENT(2));
    if (wanted->value)
        return ctl_receipt_to_file(wanted->value, text, err);
    buf_adds(&in, text);
    if (explain_receipt(&in, &out, err) < 0)
        return -1;
    (void)fd_write_all(STDERR_FILENO, out.data, out.len);
    return 0;
}

int ctl_receipt_fetch(struct ctl *c, const char *sandbox, const char *execution, json_t **ret, struct err *err)
{
    auto_free char *path = ctl_api_path("/v1/sandboxes/%s/executions/%s/receipt", sandbox, execution);

    return client_json(c->client, "GET", path, NULL, ret, err);
}
