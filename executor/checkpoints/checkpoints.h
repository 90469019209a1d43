/* Checkpoints: the fp32 state of a run (weights and both moments of AdamW), sharded as its ranks
 * hold it and written by all of them at once.
 *
 *     FOLDER/step-00000100/manifest.json     what lies where, with a checksum for each file
 *     FOLDER/step-00000100/rank-00003.bin    pieces: weights, first, second moments; little-endian;
 *                                            then the checksum of each of its ranges
 *     FOLDER/run.json                        which run it is the folder of (run_folder.h)
 *
 * A checkpoint is written under a name that no reader looks for, flushed, and renamed: it is there
 * as a whole or not at all, and never overwritten. It says nothing of the strategy, so it can be
 * read by any number of ranks under any plan of the same model. */
#ifndef EXECUTOR_CHECKPOINTS_H
#define EXECUTOR_CHECKPOINTS_H

#include "executor/checkpoints/folders.h"
#include "executor/checkpoints/run_folder.h"
#include "executor/checkpoints/safetensors.h"
#include "executor/checkpoints/shards.h"
#include "executor/job/job.h"
#include "executor/transports/transports.h"

/* Elements [begin, end) of a tensor rank's (or expert rank's) part of a parameter. In the file they
 * are runs of fp32, one after the other: of the weights and, when trained, of both moments. */
struct checkpoint_piece {
	int parameter;       /* index in the model */
	int64_t tensor_rank; /* 0 also for parameters that all of them have whole */
	int64_t begin, end;
	int file;
	int64_t offset; /* bytes, of the first run */
};

/* The runs of a parameter in a file: a frozen one has no moments. */
static inline int parameter_arrays(const struct parameter *parameter, int arrays)
{
	return parameter->trainable ? arrays : 1;
}

struct checkpoint_file {
	const char *name;
	int64_t bytes;
	const char *digest; /* xxh3-128 of the whole file, 32 hexadecimal digits */
	/* The data is followed by the xxh3-128 (canonical, 16 bytes) of each of its ranges. Both 0:
	 * version 0.1.0 wrote the file, without them. */
	int64_t range_bytes, ranges;
};
enum { CHECKPOINT_SUM = 16 };

struct manifest {
	const char *folder; /* of the checkpoint */
	const char *run;    /* id; NULL: written by 0.1.0, which gave none */
	bool sealed;        /* the manifest ends with a checksum of itself, which is right */
	int64_t step;       /* steps that are done */
	struct training training;
	struct model *model;      /* as the manifest has it */
	const char *model_digest; /* of the model as a plan file has it */
	const char *plan;         /* in a line, for people */
	int64_t ranks, seq_len, global_batch, data_tokens;
	int64_t tensor;           /* ranks that cut parameters; 0 and 1: parameters are whole */
	int64_t expert;           /* ranks that share out experts; 0 and 1: each has all */
	const struct model *part; /* the part of one of these ranks; else the whole model */
	int arrays;               /* 3 with both moments (AdamW), 1 without (SGD) */
	int n_files, n_pieces;
	struct checkpoint_file *files;
	struct checkpoint_piece *pieces; /* sorted by parameter, tensor rank, begin */
};

/* xxh3-128 of a model as a plan file has it: equal digests mean the same parameters. */
struct digest checkpoint_model_digest(const struct model *model);

void manifest_write(const struct manifest *manifest, const struct model *model, struct text *text);
/* Read the manifest of the checkpoint in `folder`. With `model` NULL files and pieces are left out.
 * EXIT_CODE_INPUT, with the place, for a wrong checksum, a folder named after another step or of
 * another run, another model, pieces that overlap or leave gaps, and files of another size. */
bool manifest_read(struct arena *arena, const char *folder, const struct model *model,
	struct manifest *manifest, struct error *error);
bool manifest_parse(struct arena *arena, const char *folder, const char *text, size_t length,
	const struct model *model, struct manifest *manifest, struct error *error);
/* Can a run that was to go on from `newer` go on from `older` instead? Else EXIT_CODE_INPUT. */
bool manifest_continues(
	const struct manifest *older, const struct manifest *newer, struct error *error);

/* Verifies the checksums of file `first` and of every `apart`-th after it. EXIT_CODE_INPUT with the
 * damaged range, and the expected and found sums. */
bool checkpoint_verify(const struct manifest *manifest, int first, int apart, struct error *error);

/* Names inside a folder of checkpoints. */
const char *checkpoint_folder(struct arena *arena, const char *folder, int64_t step);
const char *checkpoint_partial_folder(struct arena *arena, const char *folder, int64_t step);
/* "step-00000100" -> 100; -1 for any other name. */
int64_t checkpoint_step_of(const char *name);
/* The last part of a path, and the part before it. */
const char *checkpoint_name(struct arena *arena, const char *path);
const char *checkpoint_parent(struct arena *arena, const char *path);
/* The steps whose folders are there, ascending; returns how many. */
int checkpoint_list(struct arena *arena, const char *folder, int64_t **steps);

/* LOOK: the manifest and the sizes of files. VERIFY: also the contents of files. */
enum checkpoint_depth { CHECKPOINT_LOOK, CHECKPOINT_VERIFY };
/* `path` is a checkpoint, or a folder of them: then the newest that is whole is taken, and
 * info->notes names the others. EXIT_CODE_INPUT when there is none, or it is damaged or of
 * another model (NULL: any). Strings live in `arena`. */
bool checkpoint_find(struct arena *arena, const char *path, const struct model *model,
	enum checkpoint_depth depth, struct checkpoint_info *info, struct error *error);
/* The weights of a checkpoint that was verified, as one safetensors file (fp32, Hugging Face's
 * names and layouts). */
bool checkpoint_export(const char *checkpoint, const char *path, struct error *error);

/* The part of a checkpoint that one rank has written, which ranks exchange. */
struct checkpoint_part {
	int64_t step;  /* 0: it has written nothing yet */
	int64_t bytes; /* 0: other ranks write all that it holds */
	char digest[33];
	bool failed;
	char message[512];
};

/* One rank's side of writing. Everything is allocated when it is opened. */
struct checkpointer {
	const char *folder;
	int64_t every, keep;
	bool background; /* a thread writes a copy while training goes on */
	struct weights weights;
	struct store store;
	struct comm *comm;
	void *scratch;                 /* in the heap, for comm_exchange */
	struct checkpoint_part *parts; /* [ranks] */
	struct arena arena;
	struct manifest manifest; /* with the pieces of all ranks; `step` and digests change */
	struct checkpoint_piece *mine;
	int n_mine;
	float *copy; /* background: this rank's pieces */
	struct checkpoint_worker *worker;
	int64_t pending; /* step that is being written; 0 = none */
};

struct checkpoint_options {
	const char *folder;
	int64_t every, keep;
	bool background;
	const char *run;    /* id; of the first rank */
	int64_t first_step; /* so many are done; later checkpoints are damaged ones */
	struct training training;
	int64_t data_tokens;
	struct fault fault;
};

/* Makes the folder and removes what an interrupted run left half-written. EXIT_CODE_FAULT also when
 * there is no room for a checkpoint. */
bool checkpointer_open(struct checkpointer *checkpointer, const struct checkpoint_options *options,
	const struct weights *weights, struct comm *comm, void *scratch, struct error *error);
/* Writes a checkpoint if one is due after `step` steps; all ranks call it after every step.
 * EXIT_CODE_FAULT on all ranks if any of them could not write; earlier checkpoints stay. */
bool checkpointer_step(
	struct checkpointer *checkpointer, int64_t step, bool last, struct error *error);
/* Will that call read the weights? */
bool checkpointer_due(const struct checkpointer *checkpointer, int64_t step, bool last);
void checkpointer_close(struct checkpointer *checkpointer);

/* Which checkpoint to go on from: `folder`, once each of its files is verified by one of the ranks.
 * Where it is damaged and `or_older`, the newest one before it in the same run's folder that is
 * whole. All ranks take part and get the same; rank 0 has a line for each that is damaged. */
bool checkpoint_choose(struct arena *arena, const char *folder, bool or_older,
	const struct model *model, struct comm *comm, void *scratch, struct manifest *manifest,
	struct text *notes, struct error *error);
/* Fills the shards of this rank from a checkpoint that was chosen. All ranks take part. */
bool checkpoint_load(const struct manifest *manifest, const struct weights *weights,
	struct comm *comm, void *scratch, struct error *error);

/* Which pieces a rank writes: its shards, split among replicas unit by unit. Returns the number;
 * `pieces` NULL counts only. Offsets are those in the rank's file. */
int checkpoint_pieces(const struct schedule *schedule, int rank, int arrays,
	struct checkpoint_piece *pieces, int64_t *bytes);

#endif
