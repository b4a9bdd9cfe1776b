// One HTTP POST whose answer is read as it comes, bounded in time and bytes whatever the server
// does.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/cancel.h"
#include "base/status.h"
#include "llm/endpoint.h"

namespace cudaforge {

struct HttpRequest {
  Endpoint endpoint;
  std::string path;                  // after the endpoint's own: "/chat/completions"
  std::vector<std::string> headers;  // "Name: value"
  std::string body;
};

// Seconds; `left_s` is what remains of the caller's total.
struct HttpLimits {
  double connect_s = 15;
  double first_byte_s = 300;  // to the first byte of the answer's body
  double idle_s = 300;        // between two of them
  double left_s = 900;
  size_t max_bytes = size_t{32} << 20;  // of the answer, headers included
};

struct HttpAnswer {
  int status = 0;            // 0: no status line came
  std::string content_type;  // lower case, without parameters
  std::string retry_after;
  size_t bytes = 0;  // received, headers included
  // No byte came because there was no connection or it broke: another attempt may do better.
  bool connection_fault = false;
};

// Takes a piece of the body, with the headers known; an error ends the transfer.
using HttpBodySink = std::function<Status(const HttpAnswer&, std::string_view)>;

// Posts over http or https by libcurl. Certificates are verified, redirects are not followed,
// proxies are those of curl's own environment variables, and none for loopback. Installs no signal
// handler. Fills `answer` as far as it came, also on errors. Thread-safe. Errors: `on_body`'s;
// kCancelled within 0.5 s; kTimeout for every limit but connect_s; kUnavailable when there is no
// connection, or it breaks, with the address in the message.
Status HttpPost(const HttpRequest& request, const HttpLimits& limits, const Cancel& cancel,
                const HttpBodySink& on_body, HttpAnswer* answer);

}  // namespace cudaforge
