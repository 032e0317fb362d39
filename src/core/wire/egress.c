/* Each message is one list of its fields, used in both directions (codec.h). */
#include "core/wire/egress.h"

#include "core/base/mem.h"
#include "core/wire/codec.h"

static void egress_walk_id(struct codec *w, char id[ID_SIZE])
{
    codec_str(w, id, ID_SIZE, "id");
    codec_check(w, id_valid(id, "sb"), "id");
}

static void egress_listen_walk(struct codec *w, struct egress_listen *m)
{
    egress_walk_id(w, m->id);
    codec_u8(w, &m->carrier);
    codec_check(w, m->carrier == EGRESS_CARRIER_PROXY || m->carrier == EGRESS_CARRIER_TPROXY, "carrier");
}
CODEC_DEFINE(egress_listen);

static void egress_id_walk(struct codec *w, struct egress_id *m)
{
    egress_walk_id(w, m->id);
}
CODEC_DEFINE(egress_id);

static bool egress_secrets_valid(const char *const *secrets)
{
    size_t n = 0;

    for (; secrets[n]; n++)
        if (strlen(secrets[n]) > (n % 2 ? EGRESS_SECRET_VALUE_MAX : EGRESS_SECRET_NAME_MAX - 1))
            return false;
    return n % 2 == 0;
}

static void egress_bind_walk(struct codec *w, struct egress_bind *m)
{
    egress_walk_id(w, m->id);
    codec_str(w, m->tenant, sizeof(m->tenant), "tenant");
    codec_u32(w, &m->connections_max);
    codec_u32(w, &m->connection_rate);
    codec_u64(w, &m->bytes_max);
    codec_text(w, &m->rules, EGRESS_RULES_TEXT_MAX, "rules");
    codec_list(w, &m->secrets, "secrets");
    if (m->secrets && !codec_failed(w))
        codec_check(w, egress_secrets_valid(m->secrets), "secrets");
}
CODEC_DEFINE_ENCODER(egress_bind, 2 * EGRESS_SECRETS_MAX)

int egress_bind_decode(const struct frame *f, struct egress_bind *ret, void **ret_strings, struct err *err)
{
    struct unpack u;
    struct codec w = { .in = &u };
    struct egress_bind msg = { 0 };

    unpack_init(&u, f->data, f->len);
    auto_free void *strings = codec_strings(&w, 1, 2 * EGRESS_SECRETS_MAX);
    egress_bind_walk(&w, &msg);
    if (codec_end_decode(&w, f, err) < 0) {
        explicit_bzero(strings, f->len);
        return -1;
    }
    *ret = msg;
    *ret_strings = take_ptr(&strings);
    return 0;
}

static void egress_reported_walk(struct codec *w, struct egress_reported *m)
{
    codec_u8(w, &m->carrier);
    codec_check(w, m->carrier <= EGRESS_CARRIER_TPROXY, "carrier");
    codec_u64(w, &m->connections);
    codec_u64(w, &m->refused);
    codec_u64(w, &m->failed);
    codec_u64(w, &m->received);
    codec_u64(w, &m->sent);
    codec_u64(w, &m->other_destinations);
    uint32_t n = codec_count(w, &m->n, EGRESS_DESTINATIONS_MAX, "destinations");
    for (uint32_t i = 0; i < n; i++) {
        struct egress_destination *d = &m->destinations[i];

        codec_str(w, d->host, sizeof(d->host), "host");
        codec_u16(w, &d->port);
        codec_u64(w, &d->connections);
        codec_u64(w, &d->refused);
        codec_u64(w, &d->failed);
        codec_u64(w, &d->received);
        codec_u64(w, &d->sent);
        codec_str(w, d->reason, sizeof(d->reason), "reason");
    }
}
CODEC_DEFINE(egress_reported);

static void egress_listed_walk(struct codec *w, struct egress_listed *m)
{
    uint32_t n = codec_count(w, &m->n, EGRESS_CONNECTIONS_MAX, "connections");

    for (uint32_t i = 0; i < n; i++) {
        struct egress_connection *c = &m->connections[i];

        codec_str(w, c->host, sizeof(c->host), "host");
        codec_u16(w, &c->port);
        codec_u8(w, &c->way);
        codec_check(w, c->way >= EGRESS_WAY_PROXY && c->way <= EGRESS_WAY_SECRET, "way");
        codec_u64(w, &c->age_ms);
        codec_u64(w, &c->received);
        codec_u64(w, &c->sent);
    }
    codec_u32(w, &m->more);
}
CODEC_DEFINE(egress_listed);

static void egress_secret_used_walk(struct codec *w, struct egress_secret_used *m)
{
    egress_walk_id(w, m->id);
    codec_str(w, m->name, sizeof(m->name), "name");
    codec_str(w, m->host, sizeof(m->host), "host");
    codec_u32(w, &m->count);
}
CODEC_DEFINE(egress_secret_used);
