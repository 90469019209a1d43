/* How much of a long test an instrumented build runs.
 *
 * Under the sanitizers a round takes six times as long, and they look for something else than its
 * result; on 32 bits only sizes could differ. There, a quarter of the rounds is enough: the build
 * for use runs all of them. So it is under an emulator, whose build says TESTS_SAMPLED. */
#ifndef TESTS_SAMPLED_H
#define TESTS_SAMPLED_H

#if defined(__SANITIZE_ADDRESS__) || !defined(__LP64__) || defined(TESTS_SAMPLED)
enum { SAMPLED_EACH = 4 };
#else
enum { SAMPLED_EACH = 1 };
#endif

/* So many of n rounds. */
#define SAMPLED(n) ((n) / SAMPLED_EACH)

#endif
