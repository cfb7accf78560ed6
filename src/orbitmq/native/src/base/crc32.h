/* CRC-32 as zlib has it: by a table, and where the processor can multiply without carries, by folding. */
#ifndef ORBITMQ_CRC32_H
#define ORBITMQ_CRC32_H
#include "base/byte_order.h"

static void make_crc_table(void);
static uint32_t crc_of(const uint8_t *at, Py_ssize_t size);

#endif
