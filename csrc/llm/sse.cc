#include "llm/sse.h"

#include <utility>

namespace cudaforge {

Status SseParser::Feed(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    if (std::exchange(after_cr_, false) && bytes[0] == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view part = bytes.substr(0, end);
    event_bytes_ += part.size();
    if (event_bytes_ > max_event_bytes_) {
      return Status::Timeout("an event of the stream is over the limit of " +
                             std::to_string(max_event_bytes_) + " bytes");
    }
    line_.append(part);
    if (end == std::string_view::npos) break;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    CF_RETURN_IF_ERROR(EndLine(sink));
  }
  return Status::Ok();
}

Status SseParser::Finish(const Sink& sink) {
  if (!line_.empty()) CF_RETURN_IF_ERROR(EndLine(sink));
  return Dispatch(sink);
}

Status SseParser::EndLine(const Sink& sink) {
  std::string_view line = line_;
  if (std::exchange(first_line_, false) && line.starts_with("\xef\xbb\xbf")) line.remove_prefix(3);
  if (line.empty()) {
    line_.clear();
    return Dispatch(sink);
  }
  const size_t colon = line.find(':');
  const std::string_view field = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    if (has_data_) event_.data += '\n';
    event_.data.append(value);
    has_data_ = true;
  } else if (field == "event") {
    event_.name = value;
  }  // comments (no name before the colon), id and retry are not needed
  line_.clear();
  return Status::Ok();
}

Status SseParser::Dispatch(const Sink& sink) {
  event_bytes_ = 0;
  const SseEvent event = std::exchange(event_, {});
  return std::exchange(has_data_, false) ? sink(event) : Status::Ok();
}

}  // namespace cudaforge
