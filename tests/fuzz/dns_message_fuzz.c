/* A query from a program in a sandbox, to the resolver of the egress proxy; the first byte chooses
 * the answer. Also the same bytes as a stream over TCP.
 *
 * Checked in addition to memory errors: an answer fits into its buffer, is not itself taken for a
 * query, repeats id and question, and is a query that is read the same when the bit of answers and
 * the added records are removed; a name is normalised. */
#include "host/egress/dns_message.h"

#include "core/base/str.h"

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void check_question(const struct dns_query *q)
{
    struct dns_query again;
    uint8_t data[12 + sizeof(q->question)] = { (uint8_t)(q->id >> 8), (uint8_t)q->id, 0, 0, 0, 1 };

    memcpy(data + 12, q->question, q->question_len);
    must(dns_query_read(data, 12u + q->question_len, &again) == DNS_QUERY_READ);
    must(again.type == q->type && again.is_hostname == q->is_hostname && str_eq(again.name, q->name));
}

static void check_stream(const uint8_t *data, size_t size)
{
    const uint8_t *message;
    size_t len, used;

    for (; dns_tcp_read(data, size, &message, &len, &used) == DNS_TCP_MESSAGE; data += used, size -= used) {
        struct dns_query q;

        must(used <= size && message == data + 2 && len + 2 == used);
        dns_query_read(message, len, &q);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t out[DNS_ANSWER_MAX];
    struct dns_query q, echo;

    if (size < 1)
        return 0;
    check_stream(data + 1, size - 1);
    enum dns_query_kind kind = dns_query_read(data + 1, size - 1, &q);
    if (kind == DNS_QUERY_DROPPED)
        return 0;
    enum dns_answer answer = kind == DNS_QUERY_READ        ? (enum dns_answer)(data[0] % 3)
                             : kind == DNS_QUERY_MALFORMED ? DNS_ANSWER_FORMERR
                             : kind == DNS_QUERY_VERSION   ? DNS_ANSWER_BADVERS
                                                           : DNS_ANSWER_NOTIMP;
    size_t n = dns_answer_write(&q, answer, 0xc6120002, data[0] & 4 ? "no rule allows it" : NULL, out);
    must(n >= 12 && n <= sizeof(out) && memcmp(out, data + 1, 2) == 0);
    must(dns_query_read(out, n, &echo) == DNS_QUERY_DROPPED);
    must(kind == DNS_QUERY_MALFORMED || memcmp(out + 12, data + 13, q.question_len) == 0);
    if (kind == DNS_QUERY_READ) {
        char again[HOSTNAME_MAX + 1];

        must(q.question_len > 4);
        must(!q.is_hostname || (hostname_normalize(q.name, strlen(q.name), again, NULL) == 0 && str_eq(again, q.name)));
        check_question(&q);
    }
    return 0;
}
