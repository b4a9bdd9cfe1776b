// Server-sent events (WHATWG HTML, section 9.2), read from bytes as they come.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cudaforge {

struct SseEvent {
  std::string name;  // of the "event" field; empty when there was none
  std::string data;  // the "data" lines, joined by line feeds
};

// Takes bytes cut anywhere; lines end in LF, CRLF or CR. Holds at most one event in memory.
class SseParser {
 public:
  using Sink = std::function<Status(const SseEvent&)>;

  // An event whose lines come to more than `max_event_bytes` is refused.
  explicit SseParser(size_t max_event_bytes) : max_event_bytes_(max_event_bytes) {}

  // Calls `sink` for each event that ends in `bytes`. Errors: the sink's, at which parsing stops;
  // kTimeout over the limit.
  Status Feed(std::string_view bytes, const Sink& sink);
  // The stream has ended: an event without its closing blank line counts.
  Status Finish(const Sink& sink);

 private:
  Status EndLine(const Sink& sink);
  Status Dispatch(const Sink& sink);

  size_t max_event_bytes_;
  std::string line_;
  SseEvent event_;
  bool has_data_ = false;
  bool first_line_ = true;
  bool after_cr_ = false;  // a line feed that comes next belongs to the line end already seen
  size_t event_bytes_ = 0;
};

}  // namespace cudaforge
