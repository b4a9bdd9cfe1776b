// Server-sent events (WHATWG HTML, section 9.2), parsed from a stream.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace cudaforge {

struct SseEvent {
  std::string name;  // the "event" field; empty if absent
  std::string data;  // the "data" lines, joined by line feeds
};

// Takes bytes split anywhere. Lines end in LF, CRLF or CR. Holds at most one event in memory.
class SseParser {
 public:
  using Sink = std::function<Status(const SseEvent&)>;

  // Refuses an event with more than `max_event_bytes`.
  explicit SseParser(size_t max_event_bytes) : max_event_bytes_(max_event_bytes) {}

  // Calls `sink` for each event that ends in `bytes`. Stops at the sink's error. kTimeout over the
  // limit.
  Status Feed(std::string_view bytes, const Sink& sink);
  // Ends the stream. Delivers an event without its closing blank line.
  Status Finish(const Sink& sink);

 private:
  Status EndLine(const Sink& sink);
  Status Dispatch(const Sink& sink);

  size_t max_event_bytes_;
  std::string line_;
  SseEvent event_;
  bool has_data_ = false;
  bool first_line_ = true;
  bool after_cr_ = false;  // a following line feed belongs to the previous line end
  size_t event_bytes_ = 0;
};

}  // namespace cudaforge
