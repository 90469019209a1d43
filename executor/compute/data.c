#include "executor/compute/data.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "executor/compute/random.h"

/* Token files: 256 little-endian int32 (magic, version, number of tokens, zeros), then the tokens.
 * Source: llm.c, dev/data/data_common.py. */
enum { TOKEN_HEADER_BYTES = 1024, BYTE_TOKENS = 256, NARROW_TOKENS = 65536 };

static const struct token_format {
	int32_t magic, version;
	int64_t token_bytes;
} token_formats[] = {
	{20240520, 1, 2}, /* GPT-2 tokens */
	{20240801, 7, 4}, /* Llama 3 tokens */
};

static bool read_at(int fd, int64_t offset, void *to, int64_t bytes)
{
	for (int64_t got = 0; got < bytes;) {
		ssize_t n = pread(fd, (char *)to + got, (size_t)(bytes - got), offset + got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		got += n;
	}
	return true;
}

static bool read_token_header(struct data *data, const struct token_format *format,
	const int32_t header[3], int64_t bytes, struct error *error)
{
	int64_t room = (bytes - TOKEN_HEADER_BYTES) / format->token_bytes;

	if (header[1] != format->version)
		return error_at(error, EXIT_CODE_INPUT, data->path, 0, 0,
			"token file version, expected %d, got %d", format->version, header[1]);
	if (bytes < TOKEN_HEADER_BYTES || header[2] < 0 || header[2] > room)
		return error_at(error, EXIT_CODE_INPUT, data->path, 0, 0,
			"token file is cut off: its header says %d tokens, there are %lld",
			header[2], (long long)max_i64(room, 0));
	data->header_bytes = TOKEN_HEADER_BYTES;
	data->token_bytes = format->token_bytes;
	data->n_tokens = header[2];
	return true;
}

static bool is_token_file(const char *path)
{
	size_t length = strlen(path);

	return length > 4 && strcmp(path + length - 4, ".bin") == 0;
}

/* Is every second number of 16 bits 0, at the beginning? Then they are the halves of wider ones. */
static bool looks_wide(const struct data *data, int64_t bytes)
{
	enum { LOOKED_AT = 64, LEAST = 16 };
	uint32_t words[LOOKED_AT];
	int64_t n = min_i64(bytes / 4, LOOKED_AT);
	uint32_t high = 0, low = 0;

	if (n < LEAST || !read_at(data->fd, 0, words, 4 * n))
		return false;
	for (int64_t i = 0; i < n; i++) {
		high |= words[i] >> 16;
		low |= words[i];
	}
	return high == 0 && low != 0;
}

/* Nothing in such a file says what it is. nanoGPT and Megatron-LM write tokens in the narrowest
 * type that has the vocabulary, others always in 32 bits. Sources: nanoGPT,
 * data/openwebtext/prepare.py; Megatron-LM, core/datasets/indexed_dataset.py. */
static bool read_bare_tokens(struct data *data, int64_t bytes, struct error *error)
{
	data->bare = true;
	bool wide = data->vocabulary > NARROW_TOKENS || looks_wide(data, bytes);

	data->token_bytes = wide ? 4 : 2;
	data->n_tokens = bytes / data->token_bytes;
	return bytes % data->token_bytes == 0 ||
	       error_at(error, EXIT_CODE_INPUT, data->path, 0, 0,
		       "expected llm.c's header, or tokens of %lld bits alone, got %lld bytes; "
		       "a text must not end in .bin",
		       (long long)(8 * data->token_bytes), (long long)bytes);
}

static bool read_format(struct data *data, int64_t bytes, struct error *error)
{
	int32_t header[3] = {0};

	if (bytes >= (int64_t)sizeof(header) && read_at(data->fd, 0, header, sizeof(header)))
		for (int i = 0; i < COUNT_OF(token_formats); i++)
			if (header[0] == token_formats[i].magic)
				return read_token_header(
					data, &token_formats[i], header, bytes, error);
	if (is_token_file(data->path))
		return read_bare_tokens(data, bytes, error);
	if (data->vocabulary < BYTE_TOKENS)
		return error_at(error, EXIT_CODE_INPUT, data->path, 0, 0,
			"a text file gives tokens 0..255, the model's vocabulary has %lld",
			(long long)data->vocabulary);
	data->token_bytes = 1;
	data->n_tokens = bytes;
	return true;
}

static bool open_file(struct data *data, int64_t *bytes, struct error *error)
{
	struct stat status;

	data->fd = open(data->path, O_RDONLY | O_CLOEXEC);
	if (data->fd < 0 || fstat(data->fd, &status) != 0)
		return error_at(error, EXIT_CODE_INPUT, data->path, 0, 0, "cannot read: %s",
			strerror(errno));
	if (!S_ISREG(status.st_mode))
		return error_at(error, EXIT_CODE_INPUT, data->path, 0, 0, "is not a regular file");
	*bytes = status.st_size;
	return true;
}

static bool make_windows(struct data *data, struct error *error)
{
	data->n_windows = (data->n_tokens - 1) / data->seq_len;
	if (data->n_tokens < 1 || data->n_windows < 1)
		return error_at(error, EXIT_CODE_INPUT, data->path, 0, 0,
			"has %lld tokens, one sequence needs %lld (seq-len + 1)",
			(long long)data->n_tokens, (long long)data->seq_len + 1);
	data->scratch = malloc((size_t)((data->seq_len + 1) * data->token_bytes));
	if (data->scratch == NULL)
		base_out_of_memory((size_t)((data->seq_len + 1) * data->token_bytes));
	return true;
}

bool data_open(struct data *data, const char *path, int64_t seq_len, int64_t vocabulary,
	int64_t seed, struct error *error)
{
	int64_t bytes = 0;

	*data = (struct data){
		.path = path, .fd = -1, .seq_len = seq_len, .vocabulary = vocabulary, .seed = seed};
	if (open_file(data, &bytes, error) && read_format(data, bytes, error) &&
		make_windows(data, error))
		return true;
	data_close(data);
	return false;
}

void data_close(struct data *data)
{
	if (data->fd >= 0)
		close(data->fd);
	free(data->scratch);
	data->fd = -1;
	data->scratch = NULL;
}

static int32_t token_at(const struct data *data, int64_t i)
{
	const unsigned char *p = data->scratch + i * data->token_bytes;
	uint32_t token = 0;

	for (int64_t b = data->token_bytes - 1; b >= 0; b--)
		token = token << 8 | p[b];
	/* Beyond int32 is beyond any vocabulary. */
	return token <= INT32_MAX ? (int32_t)token : INT32_MAX;
}

bool data_window(struct data *data, int64_t number, int32_t *tokens, struct error *error)
{
	int64_t epoch = number / data->n_windows, n = data->seq_len + 1;
	int64_t window =
		random_permute(data->seed, epoch, data->n_windows, number % data->n_windows);
	int64_t first = window * data->seq_len;

	if (!read_at(data->fd, data->header_bytes + first * data->token_bytes, data->scratch,
		    n * data->token_bytes))
		return error_at(error, EXIT_CODE_INPUT, data->path, 0, 0,
			"cannot read tokens %lld to %lld any more", (long long)first,
			(long long)(first + n - 1));
	for (int64_t i = 0; i < n; i++) {
		tokens[i] = token_at(data, i);
		if (tokens[i] >= data->vocabulary)
			return error_at(error, EXIT_CODE_INPUT, data->path, 0, 0,
				"token %lld is %d, the model's vocabulary has %lld%s",
				(long long)(first + i), tokens[i], (long long)data->vocabulary,
				data->bare ? "; a text must not end in .bin" : "");
	}
	return true;
}
