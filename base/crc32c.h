/* crc32c.h - the Castagnoli CRC (polynomial 0x1EDC6F41, reflected), as EROFS, ext4, iSCSI and the
 * disk map of volumes use it.
 *
 * By the processor's own instruction where it has one (SSE 4.2, ARMv8 CRC), looked up while
 * running; by a table elsewhere. Both give the same.
 *
 * What it does not do: it protects against no one who means harm (digest.h).
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The usual form: begins with all ones, is inverted at the end. "123456789" gives 0xE3069283. */
uint32_t crc32c(const void *bytes, size_t len);
/* A part of it, nothing inverted: begin with UINT32_MAX and hand on what is returned. */
uint32_t crc32c_update(uint32_t crc, const void *bytes, size_t len);
/* The same without the processor's instruction. */
uint32_t crc32c_update_table(uint32_t crc, const void *bytes, size_t len);
