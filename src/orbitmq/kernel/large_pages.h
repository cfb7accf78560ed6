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
    size_t step = size >= LARGE_PAGE / 4 ? LARGE_PAGE : CACHE_LINE;
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

/* Pieces of one size. They are not given back to the system: the next who wants one gets them. The first are in small
 * pages, for there are mostly few. */
typedef struct {
    size_t size; /* whole lines, or half of one */
    void *left; /* those that nobody has; each begins with where the next is */
    size_t made;
} Pieces;

#define FIRST_PIECES 64

static void leave_piece(Pieces *pieces, void *piece) {
    memcpy(piece, &pieces->left, sizeof pieces->left);
    pieces->left = piece;
}

/* NULL if there is no memory. */
static void *take_piece(Pieces *pieces) {
    if (pieces->left == NULL) {
        size_t size = pieces->made < FIRST_PIECES ? FIRST_PIECES * pieces->size : LARGE_PAGE;
        uint8_t *made = take_lines(size);
        if (made == NULL) return NULL;
        for (size_t n = size / pieces->size; n-- > 0; pieces->made++) leave_piece(pieces, made + n * pieces->size);
    }
    void *taken = pieces->left;
    memcpy(&pieces->left, taken, sizeof pieces->left);
    return taken;
}

#endif
