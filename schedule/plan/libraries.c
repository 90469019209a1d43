/* Library versions: reads them, and says what they decide and which plans they rule out.
 * docs/runtimes.md has the sources under Library versions. */
#include "schedule/plan/libraries.h"

#include <stdio.h>
#include <string.h>

#include "schedule/plan/plan.h"

const struct libraries libraries_unknown = {.text = "unknown"};

static const char *const library_names[] = {
#define X(suffix, name) name,
	LIBRARIES(X)
#undef X
		NULL};

/* --- reading -------------------------------------------------------------------------------------
 */

/* Reads "2", "2.1" or "2.1.0", which must be all of the `length` characters. */
static int read_version(const char *text, size_t length)
{
	int part[3] = {0}, n = 0, digits = 0;

	for (size_t i = 0; i < length; i++) {
		if (text[i] == '.' && digits > 0 && n < 2) {
			n++;
			digits = 0;
		} else if (text[i] >= '0' && text[i] <= '9' && digits < 2) {
			part[n] = 10 * part[n] + (text[i] - '0');
			digits++;
		} else {
			return 0;
		}
	}
	return digits > 0 ? part[0] * 10000 + part[1] * 100 + part[2] : 0;
}

/* Reads one "name:version" of `length` characters. */
static bool read_one(const char *text, size_t length, struct libraries *libraries)
{
	static const char unknown[] = "compile:unknown";
	const char *colon = memchr(text, ':', length);
	size_t name = colon != NULL ? (size_t)(colon - text) : length;

	if (length == strlen(unknown) && strncmp(text, unknown, length) == 0) {
		libraries->compile_unknown = true;
		return true;
	}
	for (int i = 0; i < LIBRARY_COUNT && colon != NULL; i++) {
		if (strlen(library_names[i]) != name || strncmp(library_names[i], text, name) != 0)
			continue;
		if (libraries->version[i] > 0)
			return false;
		libraries->version[i] = read_version(colon + 1, length - name - 1);
		return libraries->version[i] > 0;
	}
	return false;
}

bool libraries_read(const char *text, struct libraries *libraries)
{
	*libraries = (struct libraries){.text = text};
	if (strcmp(text, libraries_unknown.text) == 0)
		return true;
	for (const char *cursor = text;; cursor++) {
		size_t length = strcspn(cursor, "+");

		if (!read_one(cursor, length, libraries))
			return false;
		cursor += length;
		if (*cursor == '\0')
			return true;
	}
}

static bool parse(const struct field *field, const char *text, void *member, struct arena *arena)
{
	(void)field;
	return libraries_read(arena_strdup(arena, text), member);
}

const struct field_decoded libraries_decoded = {sizeof(struct libraries),
	"versions such as pytorch:2.1.0+cuda:12.1, "
	"each once, of pytorch, cuda, nccl, flash-attn or megatron-core, or compile:unknown",
	parse};

bool libraries_named(const struct libraries *libraries)
{
	return libraries->text != NULL && strcmp(libraries->text, libraries_unknown.text) != 0;
}

bool library_before(const struct libraries *libraries, enum library library, int version)
{
	return libraries->version[library] > 0 && libraries->version[library] < version;
}

/* --- what follows --------------------------------------------------------------------------------
 */

/* The wheels of PyTorch require these (nvidia-nccl-cu11, -cu12), in descending order. */
static const struct {
	int pytorch, nccl;
} wheels[] = {
	{LIBRARY_VERSION(2, 9), LIBRARY_VERSION(2, 27) + 5},
	{LIBRARY_VERSION(2, 8), LIBRARY_VERSION(2, 27) + 3},
	{LIBRARY_VERSION(2, 7), LIBRARY_VERSION(2, 26) + 2},
	{LIBRARY_VERSION(2, 5), LIBRARY_VERSION(2, 21) + 5},
	{LIBRARY_VERSION(2, 3), LIBRARY_VERSION(2, 20) + 5},
	{LIBRARY_VERSION(2, 2), LIBRARY_VERSION(2, 19) + 3},
	{LIBRARY_VERSION(2, 1), LIBRARY_VERSION(2, 18) + 1},
	{LIBRARY_VERSION(1, 13), LIBRARY_VERSION(2, 14) + 3},
};

struct libraries plan_libraries(const struct plan *plan)
{
	struct libraries libraries = plan->libraries;
	int pytorch = libraries.version[LIBRARY_PYTORCH];

	/* Nothing is known of later wheels, so NCCL counts as recent, as without a name. */
	if (libraries.version[LIBRARY_NCCL] > 0 || pytorch >= LIBRARY_VERSION(2, 10))
		return libraries;
	for (int i = 0; i < COUNT_OF(wheels) && libraries.version[LIBRARY_NCCL] == 0; i++)
		if (pytorch >= wheels[i].pytorch)
			libraries.version[LIBRARY_NCCL] = wheels[i].nccl;
	if (pytorch == 0)
		libraries.version[LIBRARY_NCCL] = runtime_of(plan->runtime)->nccl_version;
	return libraries;
}

/* Returns the last version that changed what is predicted (docs/runtimes.md); for flash-attn the
 * last one of its second generation. */
static int newest_version(enum library library, enum device_generation generation)
{
	static const int newest[LIBRARY_COUNT] = {
		[LIBRARY_PYTORCH] = LIBRARY_VERSION(2, 11),
		[LIBRARY_CUDA] = LIBRARY_VERSION(12, 8),
		[LIBRARY_NCCL] = LIBRARY_VERSION(2, 28),
		[LIBRARY_FLASH_ATTN] = LIBRARY_VERSION(2, 8),
		[LIBRARY_MEGATRON_CORE] = LIBRARY_VERSION(0, 9),
	};

	return library == LIBRARY_FLASH_ATTN && generation < GENERATION_AMPERE ? 0
									       : newest[library];
}

bool plan_flattens_to_gather(const struct plan *plan)
{
	struct libraries libraries = plan_libraries(plan);

	return runtime_of(plan->runtime)->flattens_gradients &&
	       !library_before(&libraries, LIBRARY_PYTORCH, LIBRARY_VERSION(2, 0));
}

/* It drops no rows. */
bool plan_gathers_tokens(const struct plan *plan)
{
	return runtime_of(plan->runtime)->experts.routes_stream && plan->capacity_factor == 0 &&
	       library_before(&plan->libraries, LIBRARY_MEGATRON_CORE, LIBRARY_VERSION(0, 9));
}

bool plan_weighs_activations(const struct plan *plan)
{
	return runtime_of(plan->runtime)->experts.weighs_activations && !plan_gathers_tokens(plan);
}

bool plan_keeps_picked_rows(const struct plan *plan)
{
	return plan_gathers_tokens(plan) &&
	       library_before(&plan->libraries, LIBRARY_MEGATRON_CORE, LIBRARY_VERSION(0, 7));
}

double plan_host_per_kernel(const struct plan *plan)
{
	static const double before_core = 55e-6; /* vTrain's A100, the calibrating part */
	bool old = library_before(&plan->libraries, LIBRARY_MEGATRON_CORE, LIBRARY_VERSION(0, 2));
	return plan->runtime == RUNTIME_MEGATRON && old
		       ? before_core
		       : runtime_of(plan->runtime)->host_per_kernel;
}

static void print_version(struct text *text, enum library library, int version)
{
	text_printf(text, "%s%s:%d.%d", text->length > 0 ? "+" : "", library_names[library],
		version / 10000, version / 100 % 100);
	if (version % 100 > 0)
		text_printf(text, ".%d", version % 100);
}

bool libraries_newest(const struct libraries *libraries, enum device_generation generation,
	struct arena *arena, struct libraries *newest)
{
	struct text text = {0};
	bool older = false;

	*newest = *libraries;
	for (int i = 0; i < LIBRARY_COUNT; i++) {
		int last = newest_version(i, generation);

		if (library_before(libraries, i, last)) {
			newest->version[i] = last;
			older = true;
		}
		if (newest->version[i] > 0)
			print_version(&text, i, newest->version[i]);
	}
	if (libraries->compile_unknown)
		text_printf(&text, "%scompile:unknown", text.length > 0 ? "+" : "");
	newest->text = older ? arena_strdup(arena, text_string(&text)) : libraries->text;
	text_finish(&text);
	return older;
}

/* Models of these families are trained with attention kernels of their own repository. */
static bool calls_pytorch_attention(const struct plan *plan, const struct model *model)
{
	return plan->runtime != RUNTIME_SHARDPLAN && plan->runtime != RUNTIME_NANOTRON &&
	       plan->runtime != RUNTIME_INTERNEVO && plan->runtime != RUNTIME_MEGATRON &&
	       model->architecture.family != FAMILY_MPT;
}

/* torchtitan repeated keys and values for the heads of queries until its commit ff0829c of January
 * 2026, when PyTorch 2.10 came. */
int64_t plan_key_heads(const struct plan *plan, const struct model *model)
{
	struct libraries libraries = plan_libraries(plan);
	bool repeats = plan->runtime == RUNTIME_PYTORCH_FSDP2 &&
		       library_before(&libraries, LIBRARY_PYTORCH, LIBRARY_VERSION(2, 10));
	return repeats ? model->architecture.heads : model->architecture.kv_heads;
}

/* Documents, windows, sinks and values of another depth than keys are computed by FlexAttention,
 * whose kernels are of the second generation (torchtitan, pull 1610). */
static bool needs_flex(const struct plan *plan, const struct architecture *a)
{
	return plan->document_len > 0 || a->attention_window > 0 || a->attention_chunk > 0 ||
	       a->attention_sinks || (a->value_dim > 0 && a->value_dim != a->head_dim);
}

/* Chooses PyTorch's own attention. cuDNN's kernel goes first on H100 and B200 since wheels bring a
 * cuDNN after 9.15; on B200 torchtitan put it first from May 2025 on (3b85aa31f), when PyTorch 2.8
 * was next. Since June 2026 (169545712) it masks documents by FlexAttention, whose time depends on
 * them. Not named, PyTorch is recent on Blackwell alone: most published steps of Hopper are older.
 */
static enum attention_kind pytorch_attention(const struct plan *plan, const struct model *model,
	const struct libraries *libraries, enum device_generation generation)
{
	bool blackwell = generation == GENERATION_BLACKWELL;
	bool cudnn = (generation == GENERATION_HOPPER || blackwell) &&
		     !needs_flex(plan, &model->architecture);
	int first = blackwell && plan->runtime == RUNTIME_PYTORCH_FSDP2 ? LIBRARY_VERSION(2, 8)
									: LIBRARY_VERSION(2, 11);

	if (libraries->version[LIBRARY_PYTORCH] == 0)
		return blackwell && cudnn ? ATTENTION_FLASH3 : ATTENTION_FLASH;
	if (library_before(libraries, LIBRARY_PYTORCH, LIBRARY_VERSION(2, 2)))
		return ATTENTION_FLASH1;
	return !cudnn || library_before(libraries, LIBRARY_PYTORCH, first) ? ATTENTION_FLASH2
									   : ATTENTION_FLASH3;
}

/* Transformer Engine prefers cuDNN's kernel on Hopper since its 1.2 (commit 32db392, December
 * 2023), which is in no container with a PyTorch before 2.2. */
enum attention_kind plan_engine_attention(
	const struct plan *plan, enum device_generation generation)
{
	struct libraries libraries = plan_libraries(plan);
	bool cudnn = runtime_of(plan->runtime)->projection_keeps_input &&
		     plan->attention == ATTENTION_FLASH && generation >= GENERATION_HOPPER &&
		     libraries.version[LIBRARY_FLASH_ATTN] == 0 &&
		     !library_before(&libraries, LIBRARY_PYTORCH, LIBRARY_VERSION(2, 2));

	return cudnn ? ATTENTION_FLASH3 : plan->attention;
}

enum attention_kind plan_attention(
	const struct plan *plan, const struct model *model, enum device_generation generation)
{
	struct libraries libraries = plan_libraries(plan);
	int flash = libraries.version[LIBRARY_FLASH_ATTN] / 10000;

	if (plan_engine_attention(plan, generation) != ATTENTION_FLASH)
		return plan_engine_attention(plan, generation);
	if (flash > 0)
		return flash == 1   ? ATTENTION_FLASH1
		       : flash == 2 ? ATTENTION_FLASH2
				    : ATTENTION_FLASH3;
	return calls_pytorch_attention(plan, model)
		       ? pytorch_attention(plan, model, &libraries, generation)
		       : ATTENTION_FLASH;
}

bool libraries_of_attention(const struct plan *plan, const struct model *model,
	enum device_generation generation, struct libraries *newest)
{
	struct plan with = *plan;

	if (libraries_named(&plan->libraries) || plan->attention != ATTENTION_FLASH ||
		!calls_pytorch_attention(plan, model) ||
		!libraries_read("pytorch:2.11", &with.libraries) ||
		plan_attention(&with, model, generation) != ATTENTION_FLASH3 ||
		plan_attention(plan, model, generation) == ATTENTION_FLASH3)
		return false;
	*newest = with.libraries;
	return true;
}

/* --- what they rule out --------------------------------------------------------------------------
 */

/* Returns the first PyTorch that has what the plan asks for, and says what that is. */
static int needed_pytorch(const struct plan *plan, const struct model *model, const char **what)
{
	struct libraries libraries = plan_libraries(plan);
	bool flash = plan->attention == ATTENTION_FLASH &&
		     libraries.version[LIBRARY_FLASH_ATTN] == 0 &&
		     calls_pytorch_attention(plan, model);
	const struct {
		bool wanted;
		int first;
		const char *what;
	} needs[] = {
		{plan_reshards_root(plan), LIBRARY_VERSION(2, 8), "resharding of FSDP2's root"},
		{plan->runtime == RUNTIME_PYTORCH_FSDP2, LIBRARY_VERSION(2, 3), "FSDP2"},
		{plan->allocator == ALLOCATOR_EXPANDABLE, LIBRARY_VERSION(2, 1),
			"expandable segments"},
		{plan_checkpoints(plan, CHECKPOINTING_SELECTIVE), LIBRARY_VERSION(2, 1),
			"selective checkpointing"},
		{plan->compile, LIBRARY_VERSION(2, 0), "torch.compile"},
		{flash, LIBRARY_VERSION(2, 0),
			"flash attention (name flash-attn, or use --attention eager)"},
		{plan->runtime == RUNTIME_PYTORCH_FSDP1, LIBRARY_VERSION(1, 11), "FSDP"},
	};

	for (int i = 0; i < COUNT_OF(needs); i++) {
		*what = needs[i].what;
		if (needs[i].wanted)
			return needs[i].first;
	}
	return 0;
}

static bool refuse_version(const struct libraries *libraries, enum library library, int first,
	const char *what, struct error *error)
{
	int version = libraries->version[library];

	return error_set(error, EXIT_CODE_USAGE,
		"--libraries %.80s: %s %d.%d has no %s; that came with %d.%d", libraries->text,
		library_names[library], version / 10000, version / 100 % 100, what, first / 10000,
		first / 100 % 100);
}

/* Returns the first CUDA that compiles for the generation. */
static int needed_cuda(enum device_generation generation)
{
	static const int first[GENERATION_COUNT] = {
		[GENERATION_VOLTA] = LIBRARY_VERSION(9, 0),
		[GENERATION_TURING] = LIBRARY_VERSION(10, 0),
		[GENERATION_AMPERE] = LIBRARY_VERSION(11, 0),
		[GENERATION_ADA] = LIBRARY_VERSION(11, 8),
		[GENERATION_HOPPER] = LIBRARY_VERSION(11, 8),
		[GENERATION_BLACKWELL] = LIBRARY_VERSION(12, 8),
	};

	return first[generation];
}

static bool check_device(
	const struct libraries *libraries, const struct device *device, struct error *error)
{
	bool named = libraries->version[LIBRARY_CUDA] > 0 || libraries->version[LIBRARY_NCCL] > 0 ||
		     libraries->version[LIBRARY_FLASH_ATTN] > 0;
	int cuda = device->kind == DEVICE_GPU ? needed_cuda(device->generation) : 0;

	if (device->kind == DEVICE_CPU && named)
		return error_set(error, EXIT_CODE_USAGE,
			"--libraries %.80s: %s has no GPU to run them; leave them out",
			libraries->text, device->name);
	if (library_before(libraries, LIBRARY_CUDA, cuda))
		return refuse_version(libraries, LIBRARY_CUDA, cuda, "kernels for this GPU", error);
	if (device->generation < GENERATION_AMPERE && device->kind == DEVICE_GPU &&
		libraries->version[LIBRARY_FLASH_ATTN] >= LIBRARY_VERSION(2, 0))
		return error_set(error, EXIT_CODE_USAGE,
			"--libraries %.80s: "
			"flash-attn has no kernels for Volta and Turing from 2.0 on; leave it out",
			libraries->text);
	return true;
}

bool libraries_check(const struct plan *plan, const struct model *model,
	const struct topology *topology, struct error *error)
{
	const struct libraries *libraries = &plan->libraries;
	const char *what;
	int pytorch = needed_pytorch(plan, model, &what);

	if (plan->runtime == RUNTIME_SHARDPLAN &&
		(libraries->version[LIBRARY_PYTORCH] > 0 ||
			libraries->version[LIBRARY_FLASH_ATTN] > 0 || libraries->compile_unknown))
		return error_set(error, EXIT_CODE_USAGE,
			"--libraries %.80s: runtime shardplan has no PyTorch in it; "
			"name cuda and nccl alone",
			libraries->text);
	if (libraries->version[LIBRARY_MEGATRON_CORE] > 0 && plan->runtime != RUNTIME_MEGATRON)
		return error_set(error, EXIT_CODE_USAGE,
			"--libraries %.80s: runtime %s has no Megatron-Core in it; leave it out",
			libraries->text, runtime_names[plan->runtime]);
	if (libraries->compile_unknown && plan->compile)
		return error_set(error, EXIT_CODE_USAGE,
			"--libraries %.80s: --compile on says what is unknown here; "
			"leave one of them out",
			libraries->text);
	if (library_before(libraries, LIBRARY_PYTORCH, pytorch))
		return refuse_version(libraries, LIBRARY_PYTORCH, pytorch, what, error);
	return check_device(libraries, &topology->device, error);
}
