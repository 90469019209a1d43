/* The lists of cases, one for each cases_*.c. */
#ifndef TESTS_KERNELS_CASES_H
#define TESTS_KERNELS_CASES_H

#include "tests/kernels/problem.h"

extern const struct kernel_case matrix_cases[];
extern const struct kernel_case row_cases[];
extern const struct kernel_case flat_cases[];

/* What the backward of an attention case calls its kernel with. */
struct attention_backward problem_attention_backward(const struct problem *problem);

/* All of them; NULL-terminated, each list ends with a NULL name. */
extern const struct kernel_case *const case_lists[];

#endif
