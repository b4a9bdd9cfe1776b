// One HTTP POST with a streamed answer, bounded in time and bytes whatever the server does.
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
  std::string path;                  // appended to the endpoint's: "/chat/completions"
  std::vector<std::string> headers;  // "Name: value"
  std::string body;
};

// Seconds; `left_s`: what is left of the caller's total.
struct HttpLimits {
  double connect_s = 15;
  double first_byte_s = 300;  // to the first byte of the answer's body
  double idle_s = 300;        // between two of them
  double left_s = 900;
  size_t max_bytes = size_t{32} << 20;  // of the answer, including headers
};

struct HttpAnswer {
  int status = 0;            // 0: no status line was received
  std::string content_type;  // lower case, without parameters
  std::string retry_after;
  size_t bytes = 0;  // received, including headers
  // No byte was received, because the connection failed: a retry may succeed.
  bool connection_fault = false;
};

// Receives a piece of the body; headers are known. An error ends the transfer.
using HttpBodySink = std::function<Status(const HttpAnswer&, std::string_view)>;

// Posts over http or https by libcurl. Verifies certificates, follows no redirects, uses curl's
// proxy variables (no proxy for loopback), and installs no signal handler. Fills `answer`, also on
// errors. Thread-safe. Errors: `on_body`'s; kCancelled within 0.5 s; kTimeout for every limit
// except connect_s; kUnavailable, with the address: the connection failed.
Status HttpPost(const HttpRequest& request, const HttpLimits& limits, const Cancel& cancel,
                const HttpBodySink& on_body, HttpAnswer* answer);

}  // namespace cudaforge
