/* SPDX-License-Identifier: Apache-2.0 */
#include "config/document.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/heap.h"

/* O_NONBLOCK: a FIFO without a writer must not hold us before we see what it is. */
static int open_regular(const char *path, int *ret_fd, struct err *err)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);

	if (fd < 0)
		return err_set(err, errno, "%s: open: %s", path, strerror(errno));
	if (fstat(fd, &st) < 0) {
		int code = errno;

		close(fd);
		return err_set(err, code, "%s: stat: %s", path, strerror(code));
	}
	if (!S_ISREG(st.st_mode)) {
		close(fd);
		return err_set(err, S_ISDIR(st.st_mode) ? EISDIR : EINVAL,
			       "%s: is not a regular file", path);
	}
	if (st.st_size > DOCUMENT_BYTES_MAX) {
		close(fd);
		return err_set(err, EFBIG, "%s: has %lld bytes; a configuration has at most %d",
			       path, (long long)st.st_size, DOCUMENT_BYTES_MAX);
	}
	*ret_fd = fd;
	return 0;
}

/* The size that stat told may be wrong by now (and is 0 in /proc): reads until the end. */
static int read_all(int fd, const char *path, char *text, size_t room, size_t *ret_bytes,
		    struct err *err)
{
	size_t used = 0;

	while (used < room) {
		ssize_t n = read(fd, text + used, room - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_set(err, errno, "%s: read: %s", path, strerror(errno));
		if (n == 0) {
			*ret_bytes = used;
			return 0;
		}
		used += (size_t)n;
	}
	return err_set(err, EFBIG, "%s: has more than %d bytes, the most a configuration has", path,
		       DOCUMENT_BYTES_MAX);
}

int document_read_file(const char *path, char **ret_text, size_t *ret_bytes, struct err *err)
{
	char *text;
	int fd = -1, res;

	if (strcmp(path, "-") == 0)
		return err_set(err, EINVAL,
			       "-: a configuration is read from a file, "
			       "not from standard input");
	res = open_regular(path, &fd, err);
	if (res != 0)
		return res;
	text = heap_zeros(1, DOCUMENT_BYTES_MAX + 1);
	if (text == NULL)
		res = err_set(err, ENOMEM, "%s: no memory to read it", path);
	else
		res = read_all(fd, path, text, DOCUMENT_BYTES_MAX + 1, ret_bytes, err);
	close(fd);
	if (res == 0)
		*ret_text = text;
	else
		heap_free(text);
	return res;
}
