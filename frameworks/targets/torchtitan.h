/* Private to torchtitan's targets: pipelines in its words. Sources as in torchtitan.c, and
 * torchtitan/distributed/pipeline_parallel.py, where 0.2.2, 0.3.0 and main split alike. */
#ifndef FRAMEWORKS_TARGETS_TORCHTITAN_H
#define FRAMEWORKS_TARGETS_TORCHTITAN_H

#include "frameworks/targets/shared.h"

bool titan_is_pipelined(const struct exporting *exporting);

/* --- values of keys; NULL: nothing is written --------------------------------------------------
 */

const char *titan_schedule(struct exporting *exporting);
/* Sequences of a micro-batch, and micro-batches of a step. */
const char *titan_micro_batch(struct exporting *exporting);
const char *titan_micro_batches(struct exporting *exporting);
/* Sequences of a rank that go through the pipeline together; without one, a micro-batch. */
const char *titan_local_batch(struct exporting *exporting);
/* Blocks that embedding and head count as, where they are not one each. */
const char *titan_embedding(struct exporting *exporting);
const char *titan_head(struct exporting *exporting);
/* Blocks of a stage, which make the number of stages; of more than two on a rank. */
const char *titan_stage(struct exporting *exporting);

/* Stages that these keys do not make. */
void titan_note_stages(struct exporting *exporting);

/* --- import ------------------------------------------------------------------------------------
 */

/* More than one pipeline rank; `layers` of the model, 0 where it is not known. */
bool titan_finish_stages(
	struct importing *importing, int64_t layers, int64_t ranks, struct error *error);
/* Micro-batches, from the sequences of a rank or as they are. */
bool titan_finish_micro_batches(struct importing *importing, struct error *error);

#endif
