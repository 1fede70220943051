/* SPDX-License-Identifier: Apache-2.0
 *
 * How the example ends when it cannot go on: one sentence, status 1. A training program that was
 * refused its tensors has no other plan, so the code that computes stays free of error paths; what
 * can be asked for wrongly (options, files) is an error that is returned.
 */
#ifndef TRAIN_GPT_FATAL_H
#define TRAIN_GPT_FATAL_H

_Noreturn void fatal(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* For what cannot happen; stays on. */
#define REQUIRE(expr) \
	((expr) ? (void)0 : fatal("%s:%d: %s does not hold", __FILE__, __LINE__, #expr))

#endif
