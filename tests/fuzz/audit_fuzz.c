/* Files for `cove audit verify`, written by an attacker that can change the audit trail.
 *
 * Checked in addition to memory errors: a parsed line has a number, a time and two hashes that
 * are in the text; changing any byte of a line with a valid hash makes the hash invalid; the
 * verifier ends with a report, and calls a file intact only when every line was parsed and is
 * valid. */
#include "server/audit/verify.h"

#include "core/base/fd.h"
#include "core/base/mem.h"
#include "core/base/str.h"

#include <sys/mman.h>

static void must(bool ok)
{
    if (!ok)
        abort();
}

static bool line_holds(const char *line, size_t len)
{
    struct chain_line l, peeked;
    char hex[2 * CHAIN_HASH + 1];
    struct err err = { 0 };

    if (chain_parse_line(line, len, &l, &err) < 0) {
        must(err.id == ERR_INVALID && err.msg[0]);
        return false;
    }
    must(chain_peek(line, len, &peeked) && peeked.seq == l.seq && peeked.at_ms == l.at_ms);
    must(l.tenant.n <= 64 && l.action.n <= 64);
    chain_hex(l.hash, CHAIN_HASH, hex);
    must(memmem(line, len, hex, strlen(hex)) != NULL);
    must(!l.last || l.checkpoint);
    if (!chain_hash_matches(line, len, &l))
        return false;
    auto_free char *other = mem_copy(line, len);
    other[len / 2] ^= 1;
    must(chain_parse_line(other, len, &l, NULL) < 0 || !chain_hash_matches(other, len, &l));
    return true;
}

static bool all_hold(const char *text, size_t len)
{
    while (len > 0) {
        const char *end = memchr(text, '\n', len);

        if (!end || !line_holds(text, (size_t)(end - text)))
            return false;
        len -= (size_t)(end - text) + 1;
        text = end + 1;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    auto_fd int fd = memfd_create("log", MFD_CLOEXEC);
    auto_(verify) v = verify_new(NULL, 0, NULL);
    struct err err = { 0 };

    must(fd >= 0 && fd_write_all(fd, data, size) == 0 && lseek(fd, 0, SEEK_SET) == 0);
    bool hold = all_hold((const char *)data, size);
    must(verify_file(v, "log", fd, &err) == 0);
    verify_finish(v);
    const struct verify_report *r = verify_report(v);
    must(r->fault == VERIFY_FINE ? hold : r->why[0] != '\0');
    return 0;
}
