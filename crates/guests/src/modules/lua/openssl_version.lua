-- resty.openssl.version: the version whose interface is offered.
return {
  version_num = 0x30000000,
  version_text = "OpenSSL 3.0.0 (interface)",
  OPENSSL_3X = true,
  OPENSSL_111_OR_LATER = true,
  BORINGSSL = false,
}
