/* Memory that every message touches with thousands of queues. */
#ifndef ORBITMQ_HUGE_PAGES_H
#define ORBITMQ_HUGE_PAGES_H
#include "base/byte_order.h"
#include <stdlib.h>
#include <sys/mman.h>

#define CACHE_LINE ((size_t)64)

/* Pool of slabs of one size. They are reused and not returned to the system. The first are in small pages, because
 * there are mostly few. */
typedef struct {
    size_t size; /* whole cache lines, or half of one */
    void *left; /* free list; each slab begins with the address of the next */
    size_t made;
} SlabPool;

static void *alloc_lines(size_t size);
static void *alloc_zeroed_lines(size_t size);
static void slab_free(SlabPool *pool, void *slab);
static void *slab_alloc(SlabPool *pool);

#endif
