/* Memory that every message touches with thousands of queues. In huge pages where the system has them: among small
 * pages each address would also miss the TLB. */
#include "base/huge_pages.h"
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* Allocate bytes that begin with a cache line, to be freed with free; NULL if there is no memory. */
static void *alloc_lines(size_t size) {
    size_t step = size >= HUGE_PAGE / 4 ? HUGE_PAGE : CACHE_LINE;
    void *made = NULL;
    size = (size + step - 1) / step * step;
    if (posix_memalign(&made, step, size) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    if (step == HUGE_PAGE) madvise(made, size, MADV_HUGEPAGE);
#endif
    return made;
}

static void *alloc_zeroed_lines(size_t size) {
    void *made = alloc_lines(size);
    return made == NULL ? NULL : memset(made, 0, size);
}

#define FIRST_SLABS 64

static void slab_free(SlabPool *pool, void *slab) {
    memcpy(slab, &pool->left, sizeof pool->left);
    pool->left = slab;
}

/* NULL if there is no memory. */
static void *slab_alloc(SlabPool *pool) {
    if (pool->left == NULL) {
        size_t size = pool->made < FIRST_SLABS ? FIRST_SLABS * pool->size : HUGE_PAGE;
        uint8_t *made = alloc_lines(size);
        if (made == NULL) return NULL;
        for (size_t n = size / pool->size; n-- > 0; pool->made++) slab_free(pool, made + n * pool->size);
    }
    void *taken = pool->left;
    memcpy(&pool->left, taken, sizeof pool->left);
    return taken;
}
