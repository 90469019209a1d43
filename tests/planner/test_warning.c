/* Warnings: each has a question that shows it, and the most similar one that does not. */
#include "support.h"

#include <stdio.h>

static const char mixtral[] =
	"{\"model_type\": \"mixtral\", \"num_hidden_layers\": 4, \"hidden_size\": 1024, "
	"\"num_attention_heads\": 16, \"num_key_value_heads\": 8, \"intermediate_size\": 2048, "
	"\"vocab_size\": 32000, \"max_position_embeddings\": 4096, \"num_local_experts\": 8, "
	"\"num_experts_per_tok\": 2}";

struct asking {
	const char *model; /* "mixtral": of above */
	const char *topology;
	const char *knobs[12]; /* name, value, ... */
	bool thresholds;
};

static struct answer answer_to(const struct asking *asking, struct arena *arena)
{
	struct error error = {0};
	struct question question = {.topology = load_topology(arena, asking->topology)};
	struct model *model = NULL;
	if (strcmp(asking->model, "mixtral") != 0)
		model = load_model(arena, asking->model);
	else if (!model_parse(arena, "mixtral", mixtral, strlen(mixtral), &model, &error))
		fail_msg("%s", error.message);
	question.model = model;
	for (int i = 0; i < COUNT_OF(asking->knobs) && asking->knobs[i] != NULL; i += 2)
		set_choice(&question, arena, asking->knobs[i], asking->knobs[i + 1]);
	if (question_gives(&question, KNOB_TRAINABLE)) {
		if (!model_train(arena, model, &question.asked.trainable, &model, &error))
			fail_msg("%s", error.message);
		question.model = model;
	}
	question.thresholds = asking->thresholds;
	question.simplicity = 0.01;
	return ask(&question, arena);
}

static const char *sentence_of(const struct answer *answer, const char *id)
{
	for (int i = 0; i < answer->n_warnings; i++)
		if (strcmp(answer->warnings[i].id, id) == 0)
			return answer->warnings[i].sentence;
	return NULL;
}

static const struct {
	const char *id;
	const char *words; /* of the sentence */
	struct asking shows, shows_not;
} cases[] = {
	/* Llama 3 405B: 2048 sequences of 8192 tokens, as 16,384 of 1024 */
	{"batch-beyond-known", "a step has 33.6 M tokens",
		{"gpt2-124m", "dgx-h100", {"global_batch", "32768", "seq_len", "1024"}},
		{"gpt2-124m", "dgx-h100", {"global_batch", "16384", "seq_len", "1024"}}},
	{"batch-beyond-known", "one sequence a device is a step of 33.6 M tokens",
		{"llama-3.1-8b", "1024xdgx-h100", {"seq_len", "4096"}},
		{"llama-3.1-8b", "512xdgx-h100", {"seq_len", "4096"}}},
	{"model-beyond-data-parallelism", "406 B parameters",
		{"llama-3-405b", "256xdgx-h100", {"seq_len", "4096", "tensor", "1"}},
		{"gpt3-175b", "16xdgx-h100", {"seq_len", "2048", "strategy", "FULL_SHARD"}}},
	{"communication-rules", " a larger --global-batch or --tensor may help",
		{"llama-2-7b", "16xp3dn.24xlarge", {"seq_len", "4096", "global_batch", "128"}},
		{"llama-2-7b", "16xp3dn.24xlarge", {"seq_len", "4096", "global_batch", "1024"}}},
	/* 25 heads, which no two ranks share */
	{"communication-rules", " a larger --global-batch may help",
		{"gpt2-1.5b", "16xp3dn.24xlarge", {"seq_len", "1024", "global_batch", "128"}},
		{"gpt2-1.5b", "16xp3dn.24xlarge", {"seq_len", "1024", "global_batch", "4096"}}},
	{"experts-gathered", "8 experts are gathered for 2 a token",
		{"mixtral", "2xp3dn.24xlarge",
			{"seq_len", "1024", "expert", "1", "micro_batch", "1"}},
		{"mixtral", "dgx-h100", {"seq_len", "1024", "strategy", "FULL_SHARD"}}},
	{"experts-gathered", "8 experts are gathered for 2 a token",
		{"mixtral", "2xp3dn.24xlarge",
			{"seq_len", "1024", "expert", "1", "micro_batch", "1"}},
		{"gpt-oss-120b", "4xdgx-h200",
			{"seq_len", "4096", "tensor", "4", "strategy", "FULL_SHARD"}}},
	/* Frozen experts are cut over ranks too, but not by FSDP1. */
	{"experts-gathered", "128 experts are gathered for 4 a token",
		{"gpt-oss-120b", "8xp4de.24xlarge",
			{"expert", "1", "trainable", "lora:16", "strategy", "FULL_SHARD",
				"micro_batch", "1", "seq_len", "4096"}},
		{"gpt-oss-120b", "8xp4de.24xlarge",
			{"runtime", "pytorch-fsdp1", "strategy", "FULL_SHARD", "micro_batch", "1",
				"seq_len", "4096"}}},
	{"attention-sees-all", "attention to all 131072 tokens is 6",
		{"llama-3.1-8b", "8xdgx-h100", {"seq_len", "131072"}},
		{"llama-3.1-8b", "8xdgx-h100", {"seq_len", "131072", "document_len", "131072"}}},
	{"attention-sees-all", "attention to all 131072 tokens is 6",
		{"llama-3.1-8b", "8xdgx-h100", {"seq_len", "131072"}},
		{"llama-3.1-8b", "8xdgx-h100", {"seq_len", "16384"}}},
	{"tcp-at-full-rate", "95 %", {"gpt2-124m", "2xa3-megagpu-8g", {"seq_len", "1024"}},
		{"gpt2-124m", "a3-megagpu-8g", {"seq_len", "1024"}}},
	{"machine-not-measured", "RTX-4090-24GB", {"gpt2-124m", "rtx4090-8x", {"seq_len", "1024"}},
		{"gpt2-124m", "dgx-a100-80gb", {"seq_len", "1024"}}},
	{"machine-not-measured", "the host decides this step",
		{"llama-3-8b", "dgx-h100",
			{"seq_len", "256", "runtime", "megatron", "strategy", "ZERO_1", "tensor",
				"1", "micro_batch", "1", "global_batch", "256"}},
		{"llama-3-8b", "dgx-h100",
			{"seq_len", "8192", "runtime", "megatron", "strategy", "ZERO_1", "tensor",
				"1", "micro_batch", "1", "global_batch", "256"}}},
	{"fp8-eager", "use --compile on",
		{"gpt2-124m", "dgx-h100", {"seq_len", "1024", "fp8", "tensorwise"}},
		{"gpt2-124m", "dgx-h100",
			{"seq_len", "1024", "fp8", "tensorwise", "compile", "on"}}},
	{"fp8-eager", "use --compile on",
		{"gpt2-124m", "dgx-b200", {"seq_len", "1024", "fp8", "tensorwise"}},
		{"gpt2-124m", "dgx-b200", {"seq_len", "1024", "fp8", "mxfp8"}}},
	{"assumption-decides", "steps of 1 micro-batch are assumed; from 2 HYBRID_SHARD/8 ",
		{"mpt-3b", "4xg5.48xlarge", {"micro_batch", "1"}, true},
		{"mpt-3b", "4xg5.48xlarge", {"micro_batch", "1", "global_batch", "64"}, true}},
	{"assumption-decides", "sequences of 4096 tokens are assumed; from ",
		{"llama-3-8b", "2xdgx-h100", {"wrap", "block", "micro_batch", "1"}, true},
		{"llama-3-8b", "2xdgx-h100",
			{"wrap", "block", "micro_batch", "1", "seq_len", "4096"}, true}},
};

static void test_each_is_shown_and_not(void **state)
{
	(void)state;
	for (int i = 0; i < COUNT_OF(cases); i++) {
		struct arena arena = {0};
		struct answer answer = answer_to(&cases[i].shows, &arena);
		const char *sentence = sentence_of(&answer, cases[i].id);
		if (sentence == NULL || strstr(sentence, cases[i].words) == NULL)
			fail_msg("%s: %s", cases[i].id, sentence != NULL ? sentence : "not shown");
		/* one line of a screen, with "Warning: " and a full stop */
		if (strlen(sentence) > 100 - 10)
			fail_msg("too long: %s", sentence);
		answer = answer_to(&cases[i].shows_not, &arena);
		assert_non_null(answer.chosen);
		if (sentence_of(&answer, cases[i].id) != NULL)
			fail_msg("%s: shown where it is not true: %s", cases[i].id,
				sentence_of(&answer, cases[i].id));
		arena_finish(&arena);
	}
}

/* An imported topology must say what its files did not say. */
static void test_assumed_figures_are_named(void **state)
{
	(void)state;
	struct arena arena = {0};
	struct provenance from[] = {{"fabric.bandwidth", "NCCL topology dump"},
		{"fabric.latency", "assumed: NCCL's latency for this kind"}};
	struct topology *topology = load_topology(&arena, "dgx-a100-80gb");
	struct question question = {.model = load_model(&arena, "gpt2-124m"), .topology = topology};
	struct answer answer = ask(&question, &arena);
	assert_null(sentence_of(&answer, "machine-not-measured"));
	topology->n_provenance = COUNT_OF(from);
	topology->provenance = from;
	answer = ask(&question, &arena);
	assert_string_equal(sentence_of(&answer, "machine-not-measured"),
		"assumed, not measured: fabric.latency");
	arena_finish(&arena);
}

/* What one asks every day is answered without a sermon. */
static void test_an_ordinary_question_has_none(void **state)
{
	(void)state;
	static const struct asking ordinary[] = {
		{"llama-2-7b", "2xdgx-h100", {"seq_len", "4096"}},
		{"llama-2-7b", "2xdgx-a100-80gb", {NULL}},
		{"llama-3.1-8b", "dgx-h100", {"seq_len", "8192", "global_batch", "64"}},
		{"llama-3-70b", "8xdgx-h100", {"seq_len", "8192", "global_batch", "256"}},
	};
	for (int i = 0; i < COUNT_OF(ordinary); i++) {
		struct arena arena = {0};
		struct answer answer = answer_to(&ordinary[i], &arena);
		for (int w = 0; w < answer.n_warnings; w++)
			fail_msg("%s on %s: %s", ordinary[i].model, ordinary[i].topology,
				answer.warnings[w].sentence);
		arena_finish(&arena);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_is_shown_and_not),
		cmocka_unit_test(test_assumed_figures_are_named),
		cmocka_unit_test(test_an_ordinary_question_has_none),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
