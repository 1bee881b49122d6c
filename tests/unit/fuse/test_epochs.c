/* Tags that mean epochs, slots in order, planes. */
#include "epochs.h"

#include "cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define ID "0123456789ab"

static const uint8_t uuid[VOLUME_UUID_LEN] = "0123456789abcde";

/* Gets a slot while its plane is being emptied. */
static struct live_slot *taken;

int __real_fallocate64(int fd, int mode, off_t offset, off_t len);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len);
int __wrap_fallocate64(int fd, int mode, off_t offset, off_t len)
{
    if (taken)
        atomic_store(&taken->state, LIVE_SLOT_OPEN);
    return __real_fallocate64(fd, mode, offset, len);
}

static void tags_mean_epochs(void **state)
{
    (void)state;
    static struct live_map_header header;
    static const uint64_t nows[] = {1, 2, 4093, 4094, 4095, 8188, 1000000007, (1U << 30) - 1};
    for (size_t i = 0; i < ARRAY_SIZE(nows); i++) {
        header.epoch = nows[i];
        for (uint64_t behind = 0; behind < EPOCH_TAGS && behind < nows[i]; behind++)
            assert_int_equal(epoch_of_word(&header, epoch_tag(nows[i] - behind) | 0xFFFFF),
                             nows[i] - behind);
        assert_int_equal(epoch_of_word(&header, 0xFFFFF), 0);
    }
    header.epoch = 5000;
    header.old_before = 4000;
    assert_int_equal(epoch_of_word(&header, (uint32_t)EPOCH_TAG_OLD << LIVE_TAG_SHIFT), 3999);
    /* One that cannot be is of long ago. */
    header.epoch = 3;
    assert_int_equal(epoch_of_word(&header, epoch_tag(9)), 0);
}

static void dirty_is_what_no_checkpoint_has(void **state)
{
    (void)state;
    static struct live_map_header header;
    header.epoch = 9;
    const uint32_t unknown[] = {live_word(VOLUME_ZERO, 0),
                                live_word(VOLUME_CHANGED, VOLUME_MASK_ALL),
                                live_word(VOLUME_ABSENT, 0x8000)};
    const uint32_t stored[] = {live_word(VOLUME_CLEAN, VOLUME_MASK_ALL),
                               live_word(VOLUME_ABSENT, 0)};
    for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
        assert_true(epoch_is_dirty(&header, unknown[i], 0, 5)); /* nothing is known yet */
        assert_true(epoch_is_dirty(&header, unknown[i], 5, 5));
        assert_false(epoch_is_dirty(&header, unknown[i], 6, 5));
    }
    for (size_t i = 0; i < ARRAY_SIZE(stored); i++) {
        assert_false(epoch_is_dirty(&header, stored[i], 0, 5));
        assert_false(epoch_is_dirty(&header, stored[i], 6, 5));
    }
    header.orders = LIVE_ORDER_DOUBT; /* in another checkpoint */
    assert_true(epoch_is_dirty(&header, stored[0], 0, 5));
    assert_false(epoch_is_dirty(&header, stored[0], 6, 5));
    assert_false(epoch_is_dirty(&header, stored[1], 0, 5)); /* nobody can say otherwise */
    header.orders = 0;
    header.clean_epoch = 4;
    for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
        assert_false(epoch_is_dirty(&header, unknown[i], 0, 5));
        assert_false(epoch_is_dirty(&header, unknown[i], 4, 5));
        assert_true(epoch_is_dirty(&header, unknown[i], 5, 5));
        assert_false(epoch_is_dirty(&header, unknown[i], 6, 5));
    }
    header.clean_epoch = 0; /* the next one builds on another */
    header.orders = LIVE_ORDER_DOUBT;
    for (size_t i = 0; i < ARRAY_SIZE(unknown); i++)
        for (uint64_t last = 0; last <= 5; last++)
            assert_true(epoch_is_dirty(&header, unknown[i], last, 5));
}

static void slots_are_in_order(void **state)
{
    (void)state;
    static struct live_map_header header;
    static const uint64_t numbers[LIVE_MAP_SLOTS] = {9, 2, 7, 4, 5, 6, 3, 8};
    for (size_t i = 0; i < 8; i++) {
        header.slots[i].number = numbers[i];
        header.slots[i].state = i == 4   ? LIVE_SLOT_FREEING
                                : i == 5 ? LIVE_SLOT_KEPT
                                         : LIVE_SLOT_OPEN;
        header.slots[i].uses = LIVE_USE_VIEW;
    }
    struct epoch_slots slots;
    epoch_slots_look(&header, &slots);
    assert_int_equal(slots.count, 7);
    for (unsigned i = 0; i < slots.count; i++) {
        assert_int_equal(numbers[slots.at[i].slot], slots.at[i].number);
        assert_true(i == 0 || slots.at[i - 1].number < slots.at[i].number);
    }
    assert_int_equal(epoch_slot_find(&header, 7), 2);
    assert_int_equal(epoch_slot_find(&header, 6), -1); /* kept, not open */
    assert_int_equal(epoch_slot_find(&header, 77), -1);
}

static void planes_take_what_is_used(void **state)
{
    (void)state;
    struct err err = ERR_INIT;
    cleanup_fd int fd = live_map_make(ID, uuid, VOLUME_SIZE_MAX, &err);
    assert_true(fd >= 0);
    struct epoch_planes planes;
    assert_int_equal(epoch_planes_map(fd, &planes, &err), 0);
    uint64_t last = VOLUME_SIZE_MAX / VOLUME_CHUNK - 1;
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++) {
        atomic_store(&planes.words[i][0], i + 1);
        atomic_store(&planes.words[i][last], PLANE_PRESENT | i);
    }
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++) {
        assert_int_equal(planes.words[i][0], i + 1);
        assert_int_equal(planes.words[i][last], PLANE_PRESENT | i);
    }
    struct live_map live;
    assert_int_equal(live_map_open(fd, false, &live, &err), 0);
    assert_int_equal(live.words[last], 0); /* no plane lies over the words */
    live_map_close(&live);
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    assert_in_range(st.st_blocks * 512, 1, 1 << 20);
    /* What is released gives its memory back, and nothing else. */
    assert_int_equal(live_map_open(fd, true, &live, &err), 0);
    live.header->slots[3].state = LIVE_SLOT_RELEASED;
    live.header->slots[4].state = LIVE_SLOT_FREEING;
    assert_int_equal(epoch_slots_empty(&live, &err), 0);
    assert_int_equal(live.header->slots[3].state, LIVE_SLOT_FREE);
    assert_int_equal(live.header->slots[4].state, LIVE_SLOT_FREEING);
    for (unsigned i = 0; i < LIVE_MAP_SLOTS; i++)
        assert_int_equal(planes.words[i][last], i == 3 ? 0 : PLANE_PRESENT | i);
    live_map_close(&live);
    epoch_planes_unmap(&planes);
    epoch_planes_unmap(&planes);
}

/* Somebody else has given it back before, and a cut has taken it. */
static void what_was_taken_is_not_given_back(void **state)
{
    (void)state;
    struct live_map live;
    struct err err = ERR_INIT;
    cleanup_fd int fd = live_map_make(ID, uuid, VOLUME_SIZE_MIN, &err);
    assert_true(fd >= 0);
    assert_int_equal(live_map_open(fd, true, &live, &err), 0);
    live.header->slots[3].state = LIVE_SLOT_RELEASED;
    taken = &live.header->slots[3];
    int rc = epoch_slots_empty(&live, &err);
    taken = NULL;
    assert_int_equal(rc, 0);
    assert_int_equal(live.header->slots[3].state, LIVE_SLOT_OPEN);
    live_map_close(&live);
}

static void names_of_asides(void **state)
{
    (void)state;
    char name[EPOCH_NAME_BYTES];
    epoch_aside_name(0, name);
    assert_string_equal(name, "aside-0");
    epoch_aside_name(LIVE_MAP_SLOTS - 1, name);
    assert_string_equal(name, "aside-15");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags_mean_epochs),   cmocka_unit_test(dirty_is_what_no_checkpoint_has),
        cmocka_unit_test(slots_are_in_order), cmocka_unit_test(planes_take_what_is_used),
        cmocka_unit_test(names_of_asides),    cmocka_unit_test(what_was_taken_is_not_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
