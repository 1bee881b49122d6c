#include "tar_builder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    BLOCK = 512,
};

void tar_bytes(struct tar_builder *tar, const void *bytes, size_t len)
{
    if (tar->len + len > tar->cap) {
        tar->cap = 2 * (tar->len + len) + 4096;
        tar->bytes = realloc(tar->bytes, tar->cap);
        assert_non_null(tar->bytes);
    }
    memcpy(tar->bytes + tar->len, bytes, len);
    tar->len += len;
}

static void pad(struct tar_builder *tar)
{
    static const char zeros[BLOCK];
    tar_bytes(tar, zeros, (BLOCK - tar->len % BLOCK) % BLOCK);
}

void tar_record(struct tar_builder *tar, const char *key, const void *value, size_t len)
{
    if (!tar->records)
        tar->records = malloc(TAR_RECORDS_MAX);
    assert_non_null(tar->records);
    size_t rest = strlen(key) + len + 3; /* space, '=', newline */
    size_t whole = rest + 1;
    char digits[24];
    while (rest + (size_t)snprintf(digits, sizeof digits, "%zu", whole) != whole)
        whole++;
    assert_true(tar->records_len + whole + 1 <= TAR_RECORDS_MAX);
    char *at = tar->records + tar->records_len;
    int n = snprintf(at, whole, "%zu %s=", whole, key);
    memcpy(at + n, value, len);
    at[whole - 1] = '\n';
    tar->records_len += whole;
}

void tar_text(struct tar_builder *tar, const char *key, const char *value)
{
    tar_record(tar, key, value, strlen(value));
}

static void octal(char *field, size_t width, uint64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%0*llo", (int)width - 1, (unsigned long long)value);
    /* What does not fit is for a pax record to say. */
    if (strlen(text) == width - 1)
        memcpy(field, text, width - 1);
    else
        memset(field, '7', width - 1);
}

static void header(struct tar_builder *tar, const struct tar_member *member, size_t size)
{
    char block[BLOCK] = {0};
    strncpy(block, member->name, 100);
    octal(block + 100, 8, (uint64_t)member->mode);
    octal(block + 108, 8, member->uid);
    octal(block + 116, 8, member->gid);
    octal(block + 124, 12, size);
    if (member->raw_size)
        memcpy(block + 124, member->raw_size, 12);
    octal(block + 136, 12, member->mtime);
    memset(block + 148, ' ', 8);
    block[156] = member->type;
    if (member->link)
        strncpy(block + 157, member->link, 100);
    memcpy(block + 257, "ustar\00000", 8);
    octal(block + 329, 8, member->major);
    octal(block + 337, 8, member->minor);
    unsigned sum = 0;
    for (size_t i = 0; i < BLOCK; i++)
        sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
    tar_bytes(tar, block, BLOCK);
}

static void flush_records(struct tar_builder *tar, char type)
{
    if (tar->records_len == 0)
        return;
    const struct tar_member member = {.name = "PaxHeaders/0", .type = type, .mode = 0644};
    header(tar, &member, tar->records_len);
    tar_bytes(tar, tar->records, tar->records_len);
    tar->records_len = 0;
    pad(tar);
}

void tar_global(struct tar_builder *tar)
{
    flush_records(tar, 'g');
}

void tar_add(struct tar_builder *tar, const struct tar_member *member)
{
    struct tar_member copy = *member;
    if (copy.type == 0)
        copy.type = '0';
    if (copy.mode == 0)
        copy.mode = copy.type == '5' ? 0755 : 0644;
    if (copy.mode < 0)
        copy.mode = 0;
    if (copy.data && copy.size == 0)
        copy.size = strlen(copy.data);
    flush_records(tar, 'x');
    header(tar, &copy, copy.data ? copy.size : 0);
    if (copy.data)
        tar_bytes(tar, copy.data, copy.size);
    pad(tar);
}

void tar_file(struct tar_builder *tar, const char *name, const char *data)
{
    tar_add(tar, &(struct tar_member){.name = name, .data = data});
}

void tar_dir(struct tar_builder *tar, const char *name)
{
    tar_add(tar, &(struct tar_member){.name = name, .type = '5'});
}

void tar_symlink(struct tar_builder *tar, const char *name, const char *target)
{
    tar_add(tar, &(struct tar_member){.name = name, .type = '2', .link = target, .mode = 0777});
}

void tar_hardlink(struct tar_builder *tar, const char *name, const char *target)
{
    tar_add(tar, &(struct tar_member){.name = name, .type = '1', .link = target});
}

void tar_gnu_long(struct tar_builder *tar, char type, const char *text)
{
    const struct tar_member member = {.name = "././@LongLink", .type = type};
    size_t size = strlen(text) + 1;
    header(tar, &member, size);
    tar_bytes(tar, text, size);
    pad(tar);
}

void tar_end(struct tar_builder *tar)
{
    static const char zeros[2 * BLOCK];
    tar_bytes(tar, zeros, sizeof zeros);
}

void tar_free(struct tar_builder *tar)
{
    free(tar->bytes);
    free(tar->records);
    *tar = (struct tar_builder){.bytes = NULL};
}
