#include "fake.h"

#include "sandbox/walls.h"

/* --- becoming ready --- */

TEST(on_ready_waits_until_jailer_and_runtime_reported_every_wall)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();

    scene_created(&k, &spec);
    runtime_hello(&k, WIRE_VERSION, k.epoch);
    assert_int_equal(k.ready, 0);
    runtime_claimed(&k, ALL_INSIDE, 1);
    assert_int_equal(k.ready, 1);
    scene_end(&k);
}

TEST(a_template_is_requested_once_per_profile)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();
    struct sandbox_handle *second, *third;

    scene_engine(&k);
    scene_asked(&k, &spec);
    assert_int_equal(sandbox_handle_new(k.engine, &spec, &fake_box_ops, &k, &second, NULL), 0);
    jailer_takes(&k, FRAME_J_TEMPLATE);
    struct jail_template t;
    assert_int_equal(jail_template_decode(&got.f, &t, NULL), 0);
    assert_string_equal(t.name, "native-python");
    assert_int_equal(t.profile, PROFILE_PYTHON);
    jailer_ok(&k);
    jailer_takes(&k, FRAME_J_CREATE);
    jailer_takes(&k, FRAME_J_CREATE);
    assert_int_equal(sandbox_handle_new(k.engine, &spec, &fake_box_ops, &k, &third, NULL), 0);
    jailer_takes(&k, FRAME_J_CREATE);
    sandbox_handle_free(second);
    sandbox_handle_free(third);
    scene_end(&k);
}

TEST(grants_or_denials_make_a_separate_template)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();
    struct jail_template plain, granted, denied;
    struct sandbox_handle *second, *third;

    scene_engine(&k);
    scene_asked(&k, &spec);
    jailer_takes(&k, FRAME_J_TEMPLATE);
    assert_int_equal(jail_template_decode(&got.f, &plain, NULL), 0);
    jailer_takes(&k, FRAME_J_CREATE);
    spec.grants = GRANT_BIT(DEBUG);
    assert_int_equal(sandbox_handle_new(k.engine, &spec, &fake_box_ops, &k, &second, NULL), 0);
    jailer_takes(&k, FRAME_J_TEMPLATE);
    assert_int_equal(jail_template_decode(&got.f, &granted, NULL), 0);
    assert_int_equal(granted.grants, GRANT_BIT(DEBUG));
    assert_string_not_equal(granted.name, plain.name);
    jailer_takes(&k, FRAME_J_CREATE);
    spec.deny[0] = 1ull << 41;
    assert_int_equal(sandbox_handle_new(k.engine, &spec, &fake_box_ops, &k, &third, NULL), 0);
    jailer_takes(&k, FRAME_J_TEMPLATE);
    assert_int_equal(jail_template_decode(&got.f, &denied, NULL), 0);
    assert_int_equal(denied.deny[0], 1ull << 41);
    assert_string_not_equal(denied.name, granted.name);
    jailer_takes(&k, FRAME_J_CREATE);
    sandbox_handle_free(second);
    sandbox_handle_free(third);
    scene_end(&k);
}

TEST(a_failed_template_fails_its_sandboxes_and_is_requested_again)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();

    scene_engine(&k);
    scene_asked(&k, &spec);
    jailer_takes(&k, FRAME_J_TEMPLATE);
    jailer_error(&k, ERR_NO_NAMESPACES, "clone3: Operation not permitted");
    assert_int_equal(k.failed, 1);
    assert_int_equal(k.err.id, ERR_NO_NAMESPACES);
    jailer_takes(&k, FRAME_J_CREATE); /* it was sent without waiting */
    jailer_error(&k, ERR_MISSING, "no such template");
    assert_int_equal(k.failed, 1);
    sandbox_handle_free(k.box);
    scene_asked(&k, &spec);
    jailer_takes(&k, FRAME_J_TEMPLATE);
    scene_end(&k);
}

TEST(a_template_whose_spawner_died_is_requested_again)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();

    scene_engine(&k);
    scene_asked(&k, &spec);
    jailer_takes(&k, FRAME_J_TEMPLATE);
    jailer_ok(&k);
    jailer_takes(&k, FRAME_J_CREATE);
    jailer_error(&k, ERR_MISSING, "template 'native-python' does not exist");
    assert_int_equal(k.failed, 1);
    assert_int_equal(k.err.id, ERR_BUSY);
    sandbox_handle_free(k.box);
    scene_asked(&k, &spec);
    jailer_takes(&k, FRAME_J_TEMPLATE);
    scene_end(&k);
}

TEST(a_template_of_a_previous_server_is_used)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();

    scene_engine(&k);
    scene_asked(&k, &spec);
    jailer_takes(&k, FRAME_J_TEMPLATE);
    jailer_error(&k, ERR_EXISTS, "template 'native-python' exists");
    jailer_takes(&k, FRAME_J_CREATE);
    jailer_created(&k, ALL_OUTSIDE);
    runtime_takes(&k, FRAME_HELLO);
    assert_int_equal(k.failed, 0);
    scene_end(&k);
}

TEST(create_carries_limits_mounts_and_descriptors)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();
    int fd = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), other = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct sandbox_mount mounts[] = { { SANDBOX_MOUNT_BIND_RO, other, "/mnt/null" },
                                      { SANDBOX_MOUNT_WORKSPACE_COW, fd, NULL } };
    struct jail_create m;

    spec.mounts = mounts;
    spec.nmounts = 2;
    spec.limits.v[LIMIT_PIDS] = 99;
    spec.owner_uid = 501;
    scene_engine(&k);
    scene_asked(&k, &spec);
    close(fd); /* borrowed for the call only */
    close(other);
    jailer_takes(&k, FRAME_J_TEMPLATE);
    jailer_ok(&k);
    jailer_takes(&k, FRAME_J_CREATE);
    assert_int_equal(got.nfds, 2);
    assert_int_equal(jail_create_decode(&got.f, &m, NULL), 0);
    assert_string_equal(m.id, k.id);
    assert_string_equal(m.template, "native-python");
    assert_string_equal(m.hostname, "cove");
    assert_int_equal(m.nlimits, LIMIT_COUNT);
    assert_int_equal(m.limits[LIMIT_PIDS], 99);
    assert_int_equal(m.owner_uid, 501);
    assert_int_equal(m.nmounts, 2);
    assert_int_equal(m.mounts[0].kind, JAIL_BIND_RO);
    assert_string_equal(m.mounts[0].dst, "/mnt/null");
    assert_int_equal(m.mounts[1].kind, JAIL_WORKSPACE_COW);
    assert_int_equal(m.mounts[1].fd, 1);
    k.fds_before -= 2; /* counted while these two were open */
    scene_end(&k);
}

TEST(the_claim_has_rules_for_binds_and_the_spec_s_environment_on_top)
{
    static const char *const env[] = { "PATH=/mine", "COLOR=red", NULL };
    struct fake k;
    struct sandbox_spec spec = plain_spec();
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct sandbox_mount mount = { SANDBOX_MOUNT_BIND_RO, fd, "/mnt/data" };
    struct rt_claim m;
    void *strings = NULL;
    int paths = 0, colors = 0;
    bool bound = false;
    static const uint8_t zero[32];

    spec.mounts = &mount;
    spec.nmounts = 1;
    spec.env = env;
    scene_created(&k, &spec);
    assert_int_equal(rt_claim_decode(&got.f, &m, &strings, NULL), 0);
    assert_string_equal(m.id, k.id);
    assert_int_equal(m.landlock_min, 1);
    assert_memory_not_equal(m.entropy, zero, sizeof(zero));
    for (uint32_t i = 0; i < m.nrules; i++)
        bound = bound || (str_eq(m.rules[i].path, "/mnt/data") && m.rules[i].access == RT_ACCESS_READ_EXEC);
    assert_true(bound);
    for (size_t i = 0; m.env[i]; i++) {
        if (str_starts(m.env[i], "PATH=")) {
            assert_string_equal(m.env[i], "PATH=/mine");
            paths++;
        }
        colors += str_eq(m.env[i], "COLOR=red");
    }
    assert_int_equal(paths, 1);
    assert_int_equal(colors, 1);
    free(strings);
    close(fd);
    k.fds_before--;
    scene_end(&k);
}

/* --- failures --- */

TEST(every_missing_wall_fails_the_sandbox_of_every_driver_with_its_name)
{
    size_t n;
    const struct wall *walls = walls_all(&n);

    for (size_t i = 0; i < n * DRIVER_COUNT; i++) {
        const struct wall *wall = &walls[i / DRIVER_COUNT];

        if (!wall->outside)
            continue;
        struct fake k;
        struct sandbox_spec spec = plain_spec();

        spec.driver = (enum driver_id)(i % DRIVER_COUNT);
        scene_creating(&k, &spec);
        jailer_created(&k, ALL_OUTSIDE & ~wall->outside);
        silent(&k, k.runtime); /* the runtime gets no frame */
        assert_int_equal(k.failed, 0);
        jailer_removes(&k);
        assert_int_equal(k.failed, 1);
        assert_int_equal(k.err.id, ERR_WALL_MISSING);
        assert_non_null(strstr(k.err.msg, wall->name));
        scene_end(&k);
    }
}

TEST(every_wall_missing_inside_fails_the_sandbox_of_every_driver_with_its_name)
{
    size_t n;
    const struct wall *walls = walls_all(&n);

    for (size_t i = 0; i < n * DRIVER_COUNT; i++) {
        const struct wall *wall = &walls[i / DRIVER_COUNT];

        if (!wall->inside)
            continue;
        struct fake k;
        struct sandbox_spec spec = plain_spec();

        spec.driver = (enum driver_id)(i % DRIVER_COUNT);
        scene_created(&k, &spec);
        runtime_hello(&k, WIRE_VERSION, k.epoch);
        runtime_claimed(&k, ALL_INSIDE & ~wall->inside, 3);
        jailer_removes(&k);
        assert_int_equal(k.ready, 0);
        assert_int_equal(k.failed, 1);
        assert_int_equal(k.err.id, ERR_WALL_MISSING);
        assert_non_null(strstr(k.err.msg, wall->name));
        scene_end(&k);
    }
}

TEST(a_rootless_sandbox_needs_no_walls_of_other_user_ids)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();
    struct rt_hello hello;

    scene_creating(&k, &spec);
    jailer_created(&k, (ALL_OUTSIDE & ~JAIL_WALL_UNIQUE_UID) | JAIL_ROOTLESS);
    runtime_takes(&k, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    runtime_takes(&k, FRAME_CLAIM);
    runtime_hello(&k, WIRE_VERSION, hello.epoch);
    runtime_claimed(&k, ALL_INSIDE & ~RT_WALL_GROUPS, 3);
    assert_int_equal(k.ready, 1);
    scene_end(&k);
}

/* The jailer reports these walls; the sandbox must fail with this error, and nothing may be
 * left. */
static void refused_when(const struct sandbox_spec *spec, uint32_t walls, uint8_t enforced, enum err_id id,
                         const char *says)
{
    struct fake k;

    scene_creating(&k, spec);
    jailer_created_with(&k, walls, enforced);
    jailer_removes(&k);
    assert_int_equal(k.ready, 0);
    assert_int_equal(k.err.id, id);
    assert_non_null(strstr(k.err.msg, says));
    scene_end(&k);
}

TEST(a_spec_can_require_the_walls_that_need_root)
{
    struct sandbox_spec spec = plain_spec();

    spec.require_all_walls = true;
    refused_when(&spec, (ALL_OUTSIDE & ~JAIL_WALL_UNIQUE_UID) | JAIL_ROOTLESS, JAIL_ENFORCED, ERR_WALL_MISSING,
                 "unique_uid");
}

TEST(a_spec_can_require_complete_enforcement_of_a_limit)
{
    struct sandbox_spec spec = plain_spec();

    spec.require_enforced = LIMIT_BIT(PIDS) | LIMIT_BIT(IO_READ) | LIMIT_BIT(WALL); /* IO_READ is unlimited */
    refused_when(&spec, ALL_OUTSIDE, JAIL_PARTIAL, ERR_LIMIT_PARTIAL, "pids is enforced in part");
    spec.require_enforced = LIMIT_BIT(MEMORY);
    refused_when(&spec, ALL_OUTSIDE, JAIL_NONE, ERR_LIMIT_PARTIAL, "memoryBytes is enforced not at all");
}

TEST(landlock_below_the_required_abi_fails_the_sandbox)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();

    scene_created(&k, &spec);
    runtime_hello(&k, WIRE_VERSION, k.epoch);
    runtime_claimed(&k, ALL_INSIDE, 0);
    jailer_removes(&k);
    assert_int_equal(k.err.id, ERR_WALL_MISSING);
    scene_end(&k);
}

TEST(an_invalid_spec_is_refused_before_any_request)
{
    static const char *const bad_env[] = { "NOVALUE", NULL };
    struct fake k;
    struct err err = { 0 };
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    char longname[300];
    struct sandbox_mount relative = { SANDBOX_MOUNT_BIND_RO, fd, "mnt/x" }, many[JAIL_MOUNTS_MAX + 1],
                         volume = { SANDBOX_MOUNT_BIND_RO, -1, "/mnt/x", "volume" },
                         nothing = { SANDBOX_MOUNT_BIND_RO, -1, "/mnt/x" };
    struct sandbox_spec spec;

    memset(longname, 'a', sizeof(longname) - 1);
    longname[sizeof(longname) - 1] = '\0';
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        many[i] = (struct sandbox_mount){ SANDBOX_MOUNT_BIND_RO, fd, "/mnt/x" };
    scene_engine(&k);

#define REFUSED(expected)                                                                           \
    do {                                                                                            \
        assert_int_equal(sandbox_handle_new(k.engine, &spec, &fake_box_ops, &k, &k.box, &err), -1); \
        assert_int_equal(err.id, expected);                                                         \
    } while (0)
    spec = plain_spec(), spec.level = LEVEL_HIGH;
    REFUSED(ERR_LEVEL_UNAVAILABLE);
    spec = plain_spec(), spec.hostname = longname;
    REFUSED(ERR_INVALID);
    spec = plain_spec(), spec.env = bad_env;
    REFUSED(ERR_INVALID);
    spec = plain_spec(), spec.mounts = &relative, spec.nmounts = 1;
    REFUSED(ERR_BIND_TARGET);
    spec = plain_spec(), spec.mounts = &volume, spec.nmounts = 1;
    REFUSED(ERR_DRIVER_UNSUPPORTED); /* no existing driver finds volumes by name */
    spec = plain_spec(), spec.mounts = &nothing, spec.nmounts = 1;
    REFUSED(ERR_BUG);
    spec = plain_spec(), spec.mounts = many, spec.nmounts = ARRAY_LEN(many);
    REFUSED(ERR_LIMIT);
    spec = plain_spec(), spec.limits.v[LIMIT_PIDS] = 0;
    REFUSED(ERR_INVALID);
    assert_int_equal(sandbox_handle_adopt(k.engine, "sb/../x", &spec, &fake_box_ops, &k, &k.box, &err), -1);
    assert_int_equal(err.id, ERR_INVALID);
    silent(&k, k.jailer);
    close(fd);
    k.fds_before--;
    scene_end(&k);
}

TEST(a_create_that_fails_reports_the_jailer_s_reason)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();

    scene_creating(&k, &spec);
    jailer_error(&k, ERR_BIND_TARGET, "no such \033[31mplace");
    assert_int_equal(k.failed, 1);
    assert_int_equal(k.err.id, ERR_BIND_TARGET);
    assert_string_equal(k.err.msg, "no such ?[31mplace"); /* no control character may reach a terminal */
    silent(&k, k.jailer);
    scene_end(&k);
}

TEST(a_refused_claim_reports_the_runtime_s_reason)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();

    scene_created(&k, &spec);
    runtime_hello(&k, WIRE_VERSION, k.epoch);
    runtime_error(&k, 0, ERR_NO_LANDLOCK, "landlock_create_ruleset: Function not implemented");
    jailer_removes(&k);
    assert_int_equal(k.failed, 1);
    assert_int_equal(k.err.id, ERR_NO_LANDLOCK);
    scene_end(&k);
}

TEST(another_protocol_version_is_refused_with_both_numbers)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();

    scene_created(&k, &spec);
    runtime_hello(&k, WIRE_VERSION + 1, k.epoch);
    jailer_removes(&k);
    assert_int_equal(k.err.id, ERR_VERSION);
    scene_end(&k);
}

TEST(a_runtime_that_dies_before_it_is_ready_fails_the_sandbox)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();

    scene_created(&k, &spec);
    jailer_event(&k, JAIL_EVENT_ENDED, SIGSYS);
    fd_close(&k.runtime);
    jailer_removes(&k);
    assert_int_equal(k.failed, 1);
    assert_int_equal(k.err.id, ERR_LOST);
    assert_non_null(strstr(k.err.msg, "signal 31"));
    scene_end(&k);
}

/* --- hostile frames --- */

TEST(every_invalid_first_frame_fails_the_sandbox)
{
    static const struct {
        uint8_t type;
        uint32_t stream;
        bool after_hello;
    } rows[] = {
        { FRAME_CLAIMED, 0, false }, { FRAME_HELLO, 0, false }, { FRAME_HELLO, 0, true }, { FRAME_DATA, 2, true },
        { FRAME_EXIT, 0, true },     { FRAME_RESUME, 2, true }, { FRAME_EXEC, 1, true },  { FRAME_CREDIT, 0, true },
    };

    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct fake k;
        struct sandbox_spec spec = plain_spec();

        scene_created(&k, &spec);
        if (rows[i].after_hello)
            runtime_hello(&k, WIRE_VERSION, k.epoch);
        runtime_says(&k, rows[i].type, 0, rows[i].stream, "xy", 2);
        jailer_removes(&k);
        if (k.failed != 1 || k.err.id != ERR_PROTOCOL)
            fail_msg("row %zu: failed %d, %s", i, k.failed, k.err.msg);
        scene_end(&k);
    }
}

TEST(a_wrong_epoch_fails_the_sandbox)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();

    scene_created(&k, &spec);
    runtime_hello(&k, WIRE_VERSION, k.epoch + 1);
    jailer_removes(&k);
    assert_int_equal(k.err.id, ERR_PROTOCOL);
    scene_end(&k);
}

TEST(an_invalid_frame_of_a_ready_runtime_kills_the_sandbox)
{
    struct fake k;

    scene_ready(&k);
    runtime_says(&k, FRAME_DATA, RT_STDOUT, 44, "hi", 2);
    jailer_takes(&k, FRAME_J_KILL);
    assert_int_equal(k.ended, 0);
    jailer_ok(&k);
    jailer_takes(&k, FRAME_J_STATS);
    jailer_stats(&k, &no_oom);
    assert_int_equal(k.ended, 1);
    assert_int_equal(k.err.id, ERR_PROTOCOL);
    scene_end(&k);
}

TEST(a_descriptor_on_the_control_stream_kills_the_sandbox_and_is_closed)
{
    struct fake k;

    scene_ready(&k);
    put_fds(k.runtime, FRAME_HELLO, 0, 0, "x", 1, &k.cpu, 1);
    jailer_ends(&k);
    assert_int_equal(k.ended, 1);
    assert_int_equal(k.err.id, ERR_PROTOCOL);
    scene_end(&k);
}

/* --- ends --- */

TEST(destroy_answers_when_the_jailer_removed_everything)
{
    struct fake k;

    scene_ready(&k);
    sandbox_handle_destroy(k.box, on_done, &k);
    jailer_takes(&k, FRAME_J_DESTROY);
    assert_int_equal(k.done, 0);
    jailer_stats(&k, &no_oom);
    assert_int_equal(k.done, 1);
    assert_true(k.done_ok);
    assert_int_equal(k.ended + k.failed, 0);
    scene_end(&k);
}

TEST(destroy_passes_on_the_jailer_s_error)
{
    struct fake k;

    scene_ready(&k);
    sandbox_handle_destroy(k.box, on_done, &k);
    jailer_takes(&k, FRAME_J_DESTROY);
    jailer_error(&k, ERR_SYS, "rmdir: Device or resource busy");
    assert_int_equal(k.done, 1);
    assert_int_equal(k.done_err.id, ERR_SYS);
    scene_end(&k);
}

TEST(a_second_destroy_is_answered_too)
{
    struct fake k;

    scene_ready(&k);
    sandbox_handle_destroy(k.box, on_done, &k);
    jailer_removes(&k);
    sandbox_handle_destroy(k.box, on_done, &k);
    jailer_takes(&k, FRAME_J_DESTROY);
    jailer_error(&k, ERR_MISSING, "no such sandbox");
    assert_int_equal(k.done, 2);
    assert_int_equal(k.done_err.id, ERR_MISSING);
    scene_end(&k);
}

TEST(destroy_before_it_was_created_waits_and_then_removes_it)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();

    scene_creating(&k, &spec);
    sandbox_handle_destroy(k.box, on_done, &k);
    uint32_t stream = got.f.stream;
    silent(&k, k.jailer);
    got.f.stream = stream;
    jailer_created(&k, ALL_OUTSIDE);
    jailer_removes(&k);
    assert_int_equal(k.done, 1);
    assert_int_equal(k.ready + k.failed, 0);
    scene_end(&k);
}

TEST(freeing_a_handle_during_creation_destroys_the_created_sandbox)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();

    scene_creating(&k, &spec);
    sandbox_handle_free(k.box);
    k.box = NULL;
    jailer_created(&k, ALL_OUTSIDE);
    jailer_takes(&k, FRAME_J_DESTROY);
    struct jail_id m;
    assert_int_equal(jail_id_decode(&got.f, &m, NULL), 0);
    assert_string_equal(m.id, k.id);
    jailer_stats(&k, &no_oom);
    assert_int_equal(k.ready + k.failed + k.done, 0);
    scene_end(&k);
}

TEST(freeing_a_ready_handle_destroys_the_sandbox_in_the_background)
{
    struct fake k;

    scene_ready(&k);
    sandbox_handle_free(k.box);
    k.box = NULL;
    jailer_removes(&k);
    assert_int_equal(k.ended, 0);
    scene_end(&k);
}

TEST(freeing_the_handle_of_a_kept_sandbox_does_not_destroy_it)
{
    struct fake k;

    scene_ready(&k);
    sandbox_handle_keep(k.box, on_done, &k);
    jailer_takes(&k, FRAME_J_KEEP);
    jailer_ok(&k);
    assert_true(k.done == 1 && k.done_ok);
    sandbox_handle_free(k.box);
    k.box = NULL;
    silent(&k, k.jailer);
    scene_end(&k);
}

TEST(freeze_and_thaw_are_answered)
{
    struct fake k;

    scene_ready(&k);
    sandbox_handle_freeze(k.box, on_done, &k);
    jailer_takes(&k, FRAME_J_FREEZE);
    jailer_ok(&k);
    sandbox_handle_thaw(k.box, on_done, &k);
    jailer_takes(&k, FRAME_J_THAW);
    jailer_error(&k, ERR_SYS, "freezer.state");
    assert_int_equal(k.done, 2);
    assert_int_equal(k.done_err.id, ERR_SYS);
    scene_end(&k);
}

TEST(a_dead_pid_1_ends_the_sandbox)
{
    struct fake k;

    scene_ready(&k);
    jailer_event(&k, JAIL_EVENT_ENDED, SIGKILL);
    fd_close(&k.runtime);
    jailer_ends(&k);
    assert_int_equal(k.ended, 1);
    assert_int_equal(k.err.id, ERR_LOST);
    sandbox_handle_destroy(k.box, on_done, &k); /* the files that it left must still be removed */
    jailer_removes(&k);
    assert_int_equal(k.done, 1);
    scene_end(&k);
}

TEST(an_idle_sandbox_is_ended_by_its_idle_clock)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();

    spec.limits.v[LIMIT_IDLE] = 1;
    scene_ready_with(&k, &spec);
    for (int i = 0; i < 100 && !take_any(k.jailer); i++)
        ev_turn(k.ev, 20);
    assert_int_equal(got.f.type, FRAME_J_KILL);
    jailer_ok(&k);
    fd_close(&k.runtime);
    jailer_takes(&k, FRAME_J_STATS);
    jailer_stats(&k, &no_oom);
    assert_int_equal(k.ended, 1);
    assert_int_equal(k.err.id, ERR_TIMEOUT);
    scene_end(&k);
}

TEST(a_packet_that_is_not_a_frame_kills_the_sandbox)
{
    struct fake k;

    scene_running(&k);
    runtime_says(&k, 99, 0, 0, NULL, 0);
    jailer_ends(&k);
    assert_int_equal(k.exited, 1);
    assert_int_equal(k.ended_by, ENDED_LOST);
    assert_int_equal(k.ended, 1);
    assert_int_equal(k.err.id, ERR_PROTOCOL);
    scene_end(&k);
}

/* --- the jailer --- */

TEST(on_lost_comes_after_every_sandbox_has_ended)
{
    struct fake k;

    scene_ready(&k);
    fd_close(&k.jailer);
    turn(&k);
    assert_int_equal(k.lost, 0); /* the sandbox may still send frames */
    fd_close(&k.runtime);
    turn(&k);
    assert_int_equal(k.ended, 1);
    assert_int_equal(k.lost, 1);
    assert_int_equal(k.err.id, ERR_LOST);

    struct sandbox_spec spec = plain_spec();
    struct sandbox_handle *b;
    struct err err = { 0 };
    assert_int_equal(sandbox_handle_new(k.engine, &spec, &fake_box_ops, &k, &b, &err), -1);
    assert_int_equal(err.id, ERR_LOST);
    sandbox_handle_destroy(k.box, on_done, &k);
    turn(&k);
    assert_int_equal(k.done, 1);
    assert_int_equal(k.done_err.id, ERR_LOST);
    scene_end(&k);
}

TEST(a_jailer_lost_during_a_claim_fails_the_sandbox)
{
    for (int when = 0; when < 4; when++) {
        struct fake k;
        struct sandbox_spec spec = plain_spec();

        scene_engine(&k);
        scene_asked(&k, &spec);
        jailer_takes(&k, FRAME_J_TEMPLATE);
        if (when > 0) {
            jailer_ok(&k);
            jailer_takes(&k, FRAME_J_CREATE);
        }
        if (when > 1)
            jailer_created(&k, ALL_OUTSIDE);
        if (when > 2)
            sandbox_handle_destroy(k.box, on_done, &k);
        fd_close(&k.jailer);
        turn(&k);
        assert_int_equal(when > 2 ? k.done : k.failed, 1);
        assert_int_equal(k.lost, 1);
        scene_end(&k);
    }
}

TEST(an_unrequested_answer_closes_the_connection_to_the_jailer)
{
    static const uint8_t types[] = { FRAME_J_OK, FRAME_DONE, FRAME_J_CREATED, FRAME_J_EVENT, FRAME_J_KILL };

    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        struct fake k;

        scene_engine(&k);
        put(k.jailer, types[i], 0, types[i] == FRAME_J_EVENT ? 0 : 2, "x", 1);
        turn(&k);
        assert_int_equal(k.lost, 1);
        assert_int_equal(k.err.id, ERR_PROTOCOL);
        scene_end(&k);
    }
}

TEST(a_created_frame_without_descriptors_fails_the_sandbox)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();
    struct jail_created m = { .walls = ALL_OUTSIDE, .cpu_fd = 1 };
    uint8_t out[FRAME_PAYLOAD_MAX];

    scene_creating(&k, &spec);
    int len = jail_created_encode(&m, out, NULL);
    put(k.jailer, FRAME_J_CREATED, 0, got.f.stream, out, (size_t)len);
    jailer_removes(&k);
    assert_int_equal(k.failed, 1);
    assert_int_equal(k.err.id, ERR_PROTOCOL);
    scene_end(&k);
}

/* --- adoption --- */

TEST(an_adopted_sandbox_gets_only_hello_and_its_old_streams_are_discarded)
{
    static const char id[] = "sbaaaaaaaaaaaaaaaaaaaa";
    struct fake k;
    struct sandbox_spec spec = plain_spec();
    struct rt_hello hello;
    struct rt_resume resume = { .request = FRAME_EXEC, .out = 5, .in = 0 };
    uint8_t out[FRAME_PAYLOAD_MAX], big[60000] = { 0 };

    scene_engine(&k);
    assert_int_equal(sandbox_handle_adopt(k.engine, id, &spec, &fake_box_ops, &k, &k.box, NULL), 0);
    jailer_takes(&k, FRAME_J_ADOPT);
    jailer_created(&k, ALL_OUTSIDE);
    runtime_takes(&k, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    silent(&k, k.runtime);
    runtime_says(&k, FRAME_DATA, RT_STDOUT, 2, "for the host before", 19);
    runtime_hello(&k, WIRE_VERSION, hello.epoch + 1);
    runtime_hello(&k, WIRE_VERSION, hello.epoch);
    runtime_claimed(&k, ALL_INSIDE, 3); /* the runtime repeats the walls that it reported for its claim */
    assert_int_equal(k.ready, 1);
    int len = rt_resume_encode(&resume, out, NULL);
    runtime_says(&k, FRAME_RESUME, 0, 2, out, (size_t)len);
    for (int i = 0; i < 3; i++)
        runtime_says(&k, FRAME_DATA, RT_STDOUT, 2, big, sizeof(big));
    runtime_takes(&k, FRAME_CREDIT); /* read and discarded */
    k.stream = 2;
    runtime_exit(&k, 0, 0);
    runtime_takes(&k, FRAME_CLOSE);
    sandbox_handle_free(k.box); /* the sandbox is kept: it stays */
    k.box = NULL;
    silent(&k, k.jailer);
    scene_end(&k);
}

TEST(an_adopted_runtime_cannot_resume_unlimited_streams)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();
    struct rt_hello hello;
    struct rt_resume resume = { .request = FRAME_EXEC };
    uint8_t out[FRAME_PAYLOAD_MAX];

    scene_engine(&k);
    assert_int_equal(sandbox_handle_adopt(k.engine, "sbaaaaaaaaaaaaaaaaaaaa", &spec, &fake_box_ops, &k, &k.box, NULL),
                     0);
    jailer_takes(&k, FRAME_J_ADOPT);
    jailer_created(&k, ALL_OUTSIDE);
    runtime_takes(&k, FRAME_HELLO);
    assert_int_equal(rt_hello_decode(&got.f, &hello, NULL), 0);
    runtime_hello(&k, WIRE_VERSION, hello.epoch);
    runtime_claimed(&k, ALL_INSIDE, 3);
    int len = rt_resume_encode(&resume, out, NULL);
    for (uint32_t i = 1; i <= 1024; i++)
        runtime_says(&k, FRAME_RESUME, 0, 2 * i, out, (size_t)len);
    silent(&k, k.jailer);
    runtime_says(&k, FRAME_RESUME, 0, 4000, out, (size_t)len);
    jailer_takes(&k, FRAME_J_KILL);
    scene_end(&k);
}

TEST(adopting_an_unknown_sandbox_fails)
{
    struct fake k;
    struct sandbox_spec spec = plain_spec();

    scene_engine(&k);
    assert_int_equal(sandbox_handle_adopt(k.engine, "sbaaaaaaaaaaaaaaaaaaaa", &spec, &fake_box_ops, &k, &k.box, NULL),
                     0);
    jailer_takes(&k, FRAME_J_ADOPT);
    jailer_error(&k, ERR_MISSING, "no such sandbox");
    assert_int_equal(k.failed, 1);
    assert_int_equal(k.err.id, ERR_MISSING);
    scene_end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(on_ready_waits_until_jailer_and_runtime_reported_every_wall),
        RUN(a_template_is_requested_once_per_profile),
        RUN(grants_or_denials_make_a_separate_template),
        RUN(a_failed_template_fails_its_sandboxes_and_is_requested_again),
        RUN(a_template_whose_spawner_died_is_requested_again),
        RUN(a_template_of_a_previous_server_is_used),
        RUN(create_carries_limits_mounts_and_descriptors),
        RUN(the_claim_has_rules_for_binds_and_the_spec_s_environment_on_top),
        RUN(every_missing_wall_fails_the_sandbox_of_every_driver_with_its_name),
        RUN(every_wall_missing_inside_fails_the_sandbox_of_every_driver_with_its_name),
        RUN(a_rootless_sandbox_needs_no_walls_of_other_user_ids),
        RUN(a_spec_can_require_the_walls_that_need_root),
        RUN(a_spec_can_require_complete_enforcement_of_a_limit),
        RUN(landlock_below_the_required_abi_fails_the_sandbox),
        RUN(an_invalid_spec_is_refused_before_any_request),
        RUN(a_create_that_fails_reports_the_jailer_s_reason),
        RUN(a_refused_claim_reports_the_runtime_s_reason),
        RUN(another_protocol_version_is_refused_with_both_numbers),
        RUN(a_runtime_that_dies_before_it_is_ready_fails_the_sandbox),
        RUN(every_invalid_first_frame_fails_the_sandbox),
        RUN(a_wrong_epoch_fails_the_sandbox),
        RUN(an_invalid_frame_of_a_ready_runtime_kills_the_sandbox),
        RUN(a_descriptor_on_the_control_stream_kills_the_sandbox_and_is_closed),
        RUN(destroy_answers_when_the_jailer_removed_everything),
        RUN(destroy_passes_on_the_jailer_s_error),
        RUN(a_second_destroy_is_answered_too),
        RUN(destroy_before_it_was_created_waits_and_then_removes_it),
        RUN(freeing_a_handle_during_creation_destroys_the_created_sandbox),
        RUN(freeing_a_ready_handle_destroys_the_sandbox_in_the_background),
        RUN(freeing_the_handle_of_a_kept_sandbox_does_not_destroy_it),
        RUN(freeze_and_thaw_are_answered),
        RUN(a_dead_pid_1_ends_the_sandbox),
        RUN(an_idle_sandbox_is_ended_by_its_idle_clock),
        RUN(a_packet_that_is_not_a_frame_kills_the_sandbox),
        RUN(on_lost_comes_after_every_sandbox_has_ended),
        RUN(a_jailer_lost_during_a_claim_fails_the_sandbox),
        RUN(an_unrequested_answer_closes_the_connection_to_the_jailer),
        RUN(a_created_frame_without_descriptors_fails_the_sandbox),
        RUN(an_adopted_sandbox_gets_only_hello_and_its_old_streams_are_discarded),
        RUN(an_adopted_runtime_cannot_resume_unlimited_streams),
        RUN(adopting_an_unknown_sandbox_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
