/* Private to reports/export*.c: what the writers of the targets share. */
#ifndef REPORTS_EXPORT_WRITE_H
#define REPORTS_EXPORT_WRITE_H

#include "reports/export.h"
#include "reports/import.h"
#include "schedule/per_unit.h"

struct exporting {
	const struct export_target *target;
	const struct plan_file *file;
	const struct plan *plan; /* already what the target can say */
	const struct model *model;
	const struct topology *topology;
	struct exported *exported;
	struct arena *arena;
	struct text *text;
};

/* The row of each target is beside its writer. */
extern const struct export_target export_accelerate_fsdp2, export_accelerate_fsdp1,
	export_accelerate_deepspeed, export_trl, export_trainer_fsdp2, export_trainer_fsdp1,
	export_torchtitan, export_torchtitan_flags, export_torchtitan_toml, export_deepspeed,
	export_llm_foundry, export_axolotl, export_nanotron, export_megatron_fsdp,
	export_megatron_torch_fsdp2, export_pytorch_fsdp2, export_pytorch_fsdp1;

/* Where reading back is a file of its own. */
extern const struct import_format import_deepspeed, import_accelerate_deepspeed, import_torchtitan,
	import_torchtitan_flags, import_torchtitan_toml, import_pytorch_fsdp2, import_pytorch_fsdp1;

/* Applies the target's rules to a copy of the plan; every change becomes a note. */
void export_adapt(struct exporting *exporting, struct plan *plan);
/* Sets one knob, mesh and resharding with it, and notes the change; nothing when it is so already,
 * or when this version has no such value. */
void export_change(struct exporting *exporting, struct plan *plan, const char *knob,
	const char *value, const char *why);
void export_add_note(struct exporting *exporting, const char *knob, enum saying saying,
	const char *format, ...) __attribute__((format(printf, 4, 5)));
/* The value of a knob as text, without quotes; NULL when there is no such knob. */
const char *export_knob(const struct plan *plan, const char *name, struct arena *arena);

/* Comment lines that say what the file is, how to start it and what it cannot say. */
void export_header(struct exporting *exporting);

/* --- questions about the plan ----------------------------------------------------------- */
bool export_is_hybrid(const struct exporting *exporting);
bool export_is_sharded(const struct exporting *exporting);
/* The class to wrap; adds a note once when the family's is not known. */
const char *export_class(struct exporting *exporting);
/* N of wrap "size:N"; 0 for every other wrap. */
int64_t export_min_parameters(const struct exporting *exporting);
bool export_wraps_blocks(const struct exporting *exporting);
/* ZeRO's stage that comes nearest: 0 nothing, 1 optimizer state, 2 + gradients, 3 + parameters. */
int export_zero_stage(const struct plan *plan);
bool export_checkpoints(const struct exporting *exporting);
const char *export_torch_dtype(enum dtype dtype); /* "bfloat16" */
bool export_has(const char *const *names, const char *name);

#endif
