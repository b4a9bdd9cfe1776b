// The address of a service, and whether a key may be sent there.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace cudaforge {

struct Endpoint {
  std::string url;   // without a slash at its end
  std::string host;  // lower case; an IPv6 address without its brackets
  bool tls = false;
  bool loopback = false;  // localhost, 127.x.x.x or ::1: never leaves the machine
};

// Reads "http[s]://host[:port][/path]". Stricter than curl, so that the two cannot disagree about
// the host: no user name, query, fragment, escape in the host, or control character. Errors:
// kInvalidArgument, without the address where it could hold a password.
Result<Endpoint> ParseEndpoint(std::string_view url);

// kInvalidArgument for a key that cannot be a header's value, or that would travel unencrypted to
// another machine. An empty key is no key.
Status CheckKey(const Endpoint& endpoint, std::string_view key);

}  // namespace cudaforge
