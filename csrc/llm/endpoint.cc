#include "llm/endpoint.h"

#include <algorithm>

#include "base/text.h"

namespace cudaforge {
namespace {

bool IsHostChar(char c) {
  return (c >= 'a' && c <= 'z') || IsDigit(c) || c == '.' || c == '-' || c == '_';
}

// Returns true for 127.x.x.x: four decimal numbers, the first is 127.
bool IsLoopbackV4(std::string_view host) {
  int numbers = 0;
  bool first_fits = false;
  while (true) {
    const size_t dot = host.find('.');
    const std::string_view part = host.substr(0, dot);
    if (part.empty() || part.size() > 3 || !std::all_of(part.begin(), part.end(), IsDigit) ||
        (part.size() > 1 && part[0] == '0') || ParseInteger<int>(part).value_or(256) > 255) {
      return false;
    }
    if (numbers++ == 0) first_fits = part == "127";
    if (dot == std::string_view::npos) return first_fits && numbers == 4;
    host.remove_prefix(dot + 1);
  }
}

Status BadUrl(const std::string& what) {
  return Status::InvalidArgument("base URL: " + what +
                                 "; expected http[s]://host[:port][/path] and nothing else");
}

}  // namespace

Result<Endpoint> ParseEndpoint(std::string_view url) {
  while (url.ends_with('/')) url.remove_suffix(1);
  Endpoint endpoint;
  endpoint.url = url;
  if (url.starts_with("https://")) {
    endpoint.tls = true;
    url.remove_prefix(8);
  } else if (url.starts_with("http://")) {
    url.remove_prefix(7);
  } else {
    return BadUrl("no http:// or https:// at its start");
  }
  const auto printable = [](char c) { return c > ' ' && c < 0x7f && c != '\\'; };
  if (!std::all_of(url.begin(), url.end(), printable)) {
    return BadUrl("a character that must be escaped");
  }
  if (url.find('@') != std::string_view::npos) return BadUrl("a user name or password in it");
  if (url.find_first_of("?#") != std::string_view::npos) return BadUrl("a query or a fragment");
  std::string_view authority = url.substr(0, url.find('/'));
  std::string_view port;
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) return BadUrl("an IPv6 address without its closing bracket");
    endpoint.host = authority.substr(1, end - 1);
    port = authority.substr(end + 1);
    if (endpoint.host.find_first_not_of("0123456789abcdefABCDEF:.") != std::string::npos) {
      return BadUrl("a malformed IPv6 address");
    }
  } else {
    const size_t colon = authority.find(':');
    endpoint.host = authority.substr(0, colon);
    port = colon == std::string_view::npos ? "" : authority.substr(colon);
  }
  for (char& c : endpoint.host) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  const bool is_v6 = authority.starts_with('[');
  if (endpoint.host.empty() ||
      (!is_v6 && !std::all_of(endpoint.host.begin(), endpoint.host.end(), IsHostChar))) {
    return BadUrl("a malformed host name");
  }
  if (!port.empty()) {
    const std::string_view digits = port.substr(1);
    if (port[0] != ':' || digits.empty() || digits.size() > 5 ||
        !std::all_of(digits.begin(), digits.end(), IsDigit)) {
      return BadUrl("a malformed port");
    }
  }
  endpoint.loopback =
      is_v6 ? endpoint.host == "::1" : endpoint.host == "localhost" || IsLoopbackV4(endpoint.host);
  return endpoint;
}

Status CheckKey(const Endpoint& endpoint, std::string_view key) {
  const auto allowed = [](char c) { return c > ' ' && c < 0x7f; };
  if (!std::all_of(key.begin(), key.end(), allowed)) {
    return Status::InvalidArgument(
        "the API key holds a blank, a line end or another character "
        "that no key has");
  }
  if (!key.empty() && !endpoint.tls && !endpoint.loopback) {
    return Status::InvalidArgument("an API key is not sent unencrypted to " + endpoint.host +
                                   ": use https://, or leave the key away");
  }
  return Status::Ok();
}

}  // namespace cudaforge
