/* Memory for what thousands of queues need with every message. It lies in large pages where the system has some: a place
 * anywhere among small ones is also one that the processor has to look up the address of.
 */
#ifndef ORBITMQ_LARGE_PAGES_H
#define ORBITMQ_LARGE_PAGES_H
#include "bytes.h"
#include <stdlib.h>
#include <sys/mman.h>

#define LARGE_PAGE ((size_t)2 << 20)
#define CACHE_LINE ((size_t)64)

/* So many bytes that begin with a line of the processor's cache, to be given to free; NULL if there is no memory. */
static void *take_lines(size_t size) {
    size_t step = size >= LARGE_PAGE ? LARGE_PAGE : CACHE_LINE;
    void *made = NULL;
    size = (size + step - 1) / step * step;
    if (posix_memalign(&made, step, size) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    if (step == LARGE_PAGE) madvise(made, size, MADV_HUGEPAGE);
#endif
    return made;
}

static void *take_blank_lines(size_t size) {
    void *made = take_lines(size);
    return made == NULL ? NULL : memset(made, 0, size);
}

/* Blocks for tails of queues, which are all of one size. They are not given back to the system: the next queue gets
 * them. The first are in small pages, for there are mostly few. */

#define BLOCK_BYTES ((size_t)4480) /* a tail that is full, and some units more; whole lines */
#define FIRST_BLOCKS 64

typedef union Block { union Block *next; uint8_t bytes[BLOCK_BYTES]; } Block;

static Block *free_blocks;
static size_t blocks_made;

static uint8_t *take_block(void) {
    if (free_blocks == NULL) {
        size_t size = blocks_made < FIRST_BLOCKS ? FIRST_BLOCKS * BLOCK_BYTES : LARGE_PAGE;
        Block *made = take_lines(size);
        if (made == NULL) return NULL;
        for (size_t n = size / BLOCK_BYTES; n-- > 0; blocks_made++) {
            made[n].next = free_blocks;
            free_blocks = &made[n];
        }
    }
    Block *taken = free_blocks;
    free_blocks = taken->next;
    return taken->bytes;
}

static void leave_block(uint8_t *bytes) {
    Block *block = (Block *)bytes;
    block->next = free_blocks;
    free_blocks = block;
}

#endif
