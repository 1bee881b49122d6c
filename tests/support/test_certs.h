/* test_certs.h - keys and certificates for tests, made on the spot by the openssl program.
 *
 * Below the directory appear, each with a ".pem" certificate and a ".key":
 *   ca      an authority
 *   server  for 127.0.0.1 and localhost, signed by ca
 *   wrong   for the name wrong.example, signed by ca
 *   client  signed by ca
 */
#pragma once

#include "err.h"

int test_certs_make(const char *dir, struct err *err);
