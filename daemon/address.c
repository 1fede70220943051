/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The port, 1 to 65535; 0: it is none. */
static unsigned port_of(const char *text)
{
	size_t digits = strspn(text, "0123456789");
	unsigned long port =
		digits >= 1 && digits <= 5 && text[digits] == '\0' ? strtoul(text, NULL, 10) : 0;

	return port <= UINT16_MAX ? (unsigned)port : 0;
}

int address_read(const char *listen, union address *ret, socklen_t *ret_bytes)
{
	const char *colon = strrchr(listen, ':');
	char host[INET6_ADDRSTRLEN + 2];
	size_t n = colon != NULL ? (size_t)(colon - listen) : 0;
	unsigned port = colon != NULL ? port_of(colon + 1) : 0;
	bool v6 = n > 2 && listen[0] == '[' && listen[n - 1] == ']';

	if (port == 0 || n == 0 || n >= sizeof(host))
		return -EINVAL;
	memcpy(host, listen + v6, n - 2 * v6);
	host[n - 2 * v6] = '\0';
	*ret = (union address){ 0 };
	ret->any.sa_family = v6 ? AF_INET6 : AF_INET;
	*ret_bytes = v6 ? sizeof(ret->v6) : sizeof(ret->v4);
	if (v6)
		ret->v6.sin6_port = htons((uint16_t)port);
	else
		ret->v4.sin_port = htons((uint16_t)port);
	if (inet_pton(ret->any.sa_family, host,
		      v6 ? (void *)&ret->v6.sin6_addr : (void *)&ret->v4.sin_addr) != 1)
		return -EINVAL;
	return 0;
}

static bool is_loopback(const union address *a)
{
	if (a->any.sa_family == AF_INET)
		return ntohl(a->v4.sin_addr.s_addr) >> 24 == 127;
	return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
}

int address_check(const char *listen, bool *ret_loopback, struct err *err)
{
	union address address;
	socklen_t bytes;

	if (address_read(listen, &address, &bytes) < 0)
		return err_set(err, EINVAL,
			       "'%s' is no ADDRESS:PORT, such as 127.0.0.1:9477 or [::1]:9477",
			       listen);
	*ret_loopback = is_loopback(&address);
	return 0;
}
