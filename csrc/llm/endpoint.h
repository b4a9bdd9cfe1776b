// The address of a service, and whether a key may be sent to it.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace cudaforge {

struct Endpoint {
  std::string url;   // without a slash at its end
  std::string host;  // lower case; an IPv6 address without brackets
  bool tls = false;
  bool loopback = false;  // localhost, 127.x.x.x or ::1: stays on this machine
};

// Parses "http[s]://host[:port][/path]". Stricter than curl, so that both agree about the host: no
// user name, query, fragment, escape in the host, or control character. kInvalidArgument, without
// the address if it could hold a password.
Result<Endpoint> ParseEndpoint(std::string_view url);

// kInvalidArgument: a key that is not a valid header value, or would be sent unencrypted to another
// machine. An empty key is no key.
Status CheckKey(const Endpoint& endpoint, std::string_view key);

}  // namespace cudaforge
