/* Makes a complete plan from a question: defaults, the mesh, the batch arithmetic, and refusals.
 * This needs the units of the model, which plan.h does not know. */
#ifndef SCHEDULE_RESOLVE_H
#define SCHEDULE_RESOLVE_H

#include "schedule/plan/plan.h"

/* Fills what was not given with the defaults of docs/commands.md (`help defaults`),
 * does the batch arithmetic, lays out the mesh, and checks every knob against the runtime table.
 * Errors are EXIT_CODE_USAGE and name the option and the nearby values that would do. */
bool plan_resolve(const struct question *question, struct arena *arena, struct plan *plan,
	struct error *error);

/* Tokens in a sequence where the question does not say. */
int64_t plan_usual_length(const struct model *model);

/* Can the devices be laid out as the axes of the question ask, whatever its other knobs are? Where
 * not, plan_resolve has the same error. */
bool plan_has_mesh(const struct question *question, struct error *error);

/* Other values than the defaults that the user gave and that mean nothing under the resolved plan:
 * DDP's buckets are no units, NO_SHARD gathers nothing. EXIT_CODE_USAGE. A search that tries many
 * strategies does not ask. */
bool plan_honours(const struct question *question, const struct plan *plan, struct error *error);

/* The same checks on a complete plan (from a file). */
bool plan_check(const struct plan *plan, const struct model *model, const struct topology *topology,
	struct error *error);

/* The part of these checks that says whether the model can be divided as the plan divides it. */
bool plan_check_axes(const struct plan *plan, const struct model *model, struct error *error);
/* exchanges.c. Of tokens between tensor ranks, and of rows between expert ranks. */
bool plan_check_exchanges(const struct plan *plan, const struct model *model,
	const struct topology *topology, struct error *error);

/* recompute.c. Modules that are computed again, and the refusal where none are. */
bool plan_recomputes_nothing(const struct name_set *modules, struct error *error);
bool plan_check_recompute(const struct plan *plan, const struct model *model, struct error *error);

/* kernels.c. Of attention, and Liger's. */
bool plan_check_kernels(const struct plan *plan, const struct model *model,
	const struct device *device, struct error *error);

/* graphs.c. What is captured as CUDA graphs. */
bool plan_check_graphs(const struct plan *plan, const struct model *model, struct error *error);

/* The divisors of n nearest to `size`: "4 or 8". Returns `text`. */
const char *nearest_divisors(int64_t n, int64_t size, char text[48]);

/* Do so many tensor ranks, of `ranks`, have equal parts of the model? */
bool tensor_divides(const struct architecture *architecture, int64_t ranks, int64_t tensor);
/* The numbers of tensor ranks nearest to `size` that do. Returns `text`. */
const char *nearest_tensor(
	const struct architecture *architecture, int64_t ranks, int64_t size, char text[48]);

/* Number of units with parameters under the plan's wrap policy, the root among them when it holds
 * some (`*root`); DDP: 0. */
int64_t plan_units(const struct plan *plan, const struct model *model, bool *root);

/* Do the runs of the three knobs count what the model and the wrap policy have? EXIT_CODE_USAGE
 * with the number that was expected. */
bool plan_check_rows(const struct plan *plan, const struct model *model, struct error *error);

#endif
