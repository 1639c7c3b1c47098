// adapt.h: block sizes that fit the histogram: proposing and adopting them. See vmpool_adapt.h.
//
// The best sizes: of points in rising order, a class covers a run of them and costs, for each request, what the largest
// point is larger. The cost of a run (i, j] obeys the quadrangle inequality, so the best start of the last class never
// moves back as j grows: each of N rounds is a divide and conquer, O(N P log P) for P points.
//
// Owns: the choice, and when to adopt. Does not own: counting (histogram.h), classes (slab.h).
#ifndef VMPOOL_POOL_ADAPT_H_
#define VMPOOL_POOL_ADAPT_H_

#include "pool/histogram.h"
#include "pool/pool.h"

// vmp_adapt_choose fills in everything of *out but struct_size from `num_points` points. VMP_ERROR_HOST_OUT_OF_MEMORY.
// Needs no lock.
vmp_status vmp_adapt_choose(const vmp_size_point *points, size_t num_points, uint64_t granule_bytes, size_t num_classes,
                            double share, vmp_class_proposal *out);

// vmp_adapt_waste: what the given classes add to the points that they hold, as a share of their bytes.
double vmp_adapt_waste(const vmp_size_point *points, size_t num_points, const uint64_t *class_bytes,
                       size_t num_classes);

// vmp_adapt_step adopts classes if the option `adaptive` is set and it is worth it. Without the lock. A failure leaves
// everything as it was, to be tried again at the next step.
void vmp_adapt_step(vmp_pool *pool);

// vmp_adapt_replan routes a request anew whose classes were exchanged since it was routed; false: they were not. The
// lock is held, and nothing was promised for the request.
bool vmp_adapt_replan(vmp_pool *pool, vmp_plan *plan);

#endif  // VMPOOL_POOL_ADAPT_H_
