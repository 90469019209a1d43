#include "executor/launch/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#if HAVE_SODIUM
#include <sodium.h>
#endif

static const char variable[] = "SHARDPLAN_SECRET", file_variable[] = "SHARDPLAN_SECRET_FILE";

/* --- keyed hashes --- */

#if HAVE_SODIUM

_Static_assert(SECRET_BYTES == crypto_auth_hmacsha512256_KEYBYTES, "a key");
_Static_assert(SECRET_BYTES == crypto_auth_hmacsha512256_BYTES, "a proof");

static bool make_key(struct secret *secret, const char *text, size_t bytes, struct error *error)
{
	if (sodium_init() < 0)
		return error_set(error, EXIT_CODE_ENVIRONMENT, "libsodium cannot be used here");
	secret->known = true;
	return crypto_generichash(secret->key, sizeof(secret->key), (const unsigned char *)text,
		       bytes, NULL, 0) == 0;
}

static void hash(const struct secret *secret, const void *const *parts, const size_t *bytes, int n,
	struct proof *proof)
{
	crypto_auth_hmacsha512256_state state;

	crypto_auth_hmacsha512256_init(&state, secret->key, sizeof(secret->key));
	for (int i = 0; i < n; i++)
		crypto_auth_hmacsha512256_update(&state, parts[i], bytes[i]);
	crypto_auth_hmacsha512256_final(&state, proof->bytes);
}

bool proof_equal(const struct proof *a, const struct proof *b)
{
	return sodium_memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

#else

static bool make_key(struct secret *secret, const char *text, size_t bytes, struct error *error)
{
	(void)secret, (void)text, (void)bytes;
	return error_set(error, EXIT_CODE_ENVIRONMENT,
		"%s: this build has no libsodium, so ranks cannot prove that they know it; "
		"build with libsodium-dev, or unset it",
		getenv(variable) != NULL ? variable : file_variable);
}

static void hash(const struct secret *secret, const void *const *parts, const size_t *bytes, int n,
	struct proof *proof)
{
	(void)secret, (void)parts, (void)bytes, (void)n, (void)proof;
}

bool proof_equal(const struct proof *a, const struct proof *b)
{
	return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

#endif

struct proof secret_prove(const struct secret *secret, const char *role, const struct nonce *caller,
	const struct nonce *called, const void *said, size_t bytes)
{
	const void *const parts[] = {role, caller->bytes, called->bytes, said};
	const size_t sizes[] = {
		strlen(role) + 1, sizeof(caller->bytes), sizeof(called->bytes), bytes};
	struct proof proof = {0};

	if (secret->known)
		hash(secret, parts, sizes, COUNT_OF(parts), &proof);
	return proof;
}

bool nonce_draw(struct nonce *nonce, struct error *error)
{
	return getrandom(nonce->bytes, sizeof(nonce->bytes), 0) == (ssize_t)sizeof(nonce->bytes) ||
	       error_set(error, EXIT_CODE_ENVIRONMENT, "no random numbers (getrandom): %s",
		       strerror(errno));
}

/* --- where it comes from --- */

static bool take(struct secret *secret, const char *name, const char *text, size_t bytes,
	struct error *error)
{
	while (bytes > 0 && (text[bytes - 1] == '\n' || text[bytes - 1] == '\r'))
		bytes--;
	if (bytes < SECRET_LEAST || bytes > SECRET_MOST)
		return error_set(error, EXIT_CODE_USAGE,
			"%.200s: expected a secret of %d to %d characters, got %zu; "
			"`openssl rand -hex 32` makes one",
			name, SECRET_LEAST, SECRET_MOST, bytes);
	return make_key(secret, text, bytes, error);
}

static bool check_file(int fd, const char *path, struct error *error)
{
	struct stat about;

	if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode))
		return error_set(error, EXIT_CODE_INPUT, "%.200s: expected a plain file (%s)", path,
			file_variable);
	if ((about.st_mode & 077) != 0 || (about.st_uid != geteuid() && about.st_uid != 0))
		return error_set(error, EXIT_CODE_INPUT,
			"%.200s: others can read it or own it (mode %03o), "
			"expected a secret of yours alone; chmod 600 %.200s",
			path, (unsigned)about.st_mode & 0777, path);
	return true;
}

static bool read_file(struct secret *secret, const char *path, struct error *error)
{
	char text[SECRET_MOST + 3];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return error_set(error, EXIT_CODE_INPUT, "%.200s: %s (%s)", path, strerror(errno),
			file_variable);
	ssize_t n = check_file(fd, path, error) ? read(fd, text, sizeof(text)) : -1;
	close(fd);
	bool ok = n >= 0 && take(secret, path, text, (size_t)n, error);
	explicit_bzero(text, sizeof(text));
	return ok || error_set(error, EXIT_CODE_INPUT, "%.200s: cannot be read", path);
}

bool secret_find(struct secret *secret, struct error *error)
{
	const char *text = getenv(variable), *path = getenv(file_variable);

	*secret = (struct secret){0};
	if (text != NULL && path != NULL)
		return error_set(error, EXIT_CODE_USAGE, "%s and %s are both set; use one",
			variable, file_variable);
	if (text != NULL)
		return take(secret, variable, text, strlen(text), error);
	return path == NULL || read_file(secret, path, error);
}
