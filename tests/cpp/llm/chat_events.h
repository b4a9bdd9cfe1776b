// Answers in the form of chat services.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace cudaforge {

inline std::string SseText(const Json& data, std::string_view name = "") {
  const std::string event = name.empty() ? "" : "event: " + std::string(name) + "\n";
  return event + "data: " + data.dump() + "\n\n";
}

// A chat completions stream of `pieces`, with its usage and its end.
inline std::string OpenAiStream(const std::vector<std::string>& pieces,
                                const Json& usage = {
                                    {"prompt_tokens", 100},
                                    {"completion_tokens", 20},
                                    {"prompt_tokens_details", {{"cached_tokens", 60}}}}) {
  const auto chunk = [](const Json& delta, const Json& finish) {
    return SseText({{"model", "model-1"},
                    {"choices", {{{"index", 0}, {"delta", delta}, {"finish_reason", finish}}}},
                    {"usage", nullptr}});
  };
  std::string text = chunk({{"role", "assistant"}, {"content", ""}}, nullptr);
  for (const std::string& piece : pieces) text += chunk({{"content", piece}}, nullptr);
  text += chunk(Json::object(), "stop");
  text += SseText({{"model", "model-1"}, {"choices", Json::array()}, {"usage", usage}});
  return text + "data: [DONE]\n\n";
}

inline std::string AnthropicStream(const std::vector<std::string>& pieces) {
  std::string text = SseText({{"type", "message_start"},
                              {"message",
                               {{"model", "claude-1"},
                                {"usage",
                                 {{"input_tokens", 30},
                                  {"cache_read_input_tokens", 60},
                                  {"cache_creation_input_tokens", 10},
                                  {"output_tokens", 1}}}}}},
                             "message_start");
  text += SseText({{"type", "content_block_start"},
                   {"index", 0},
                   {"content_block", {{"type", "thinking"}, {"thinking", ""}}}},
                  "content_block_start");
  text += SseText({{"type", "content_block_delta"},
                   {"index", 0},
                   {"delta", {{"type", "thinking_delta"}, {"thinking", "hm"}}}},
                  "content_block_delta");
  text += SseText({{"type", "ping"}}, "ping");
  text += SseText({{"type", "content_block_start"},
                   {"index", 1},
                   {"content_block", {{"type", "text"}, {"text", ""}}}},
                  "content_block_start");
  for (const std::string& piece : pieces) {
    text += SseText({{"type", "content_block_delta"},
                     {"index", 1},
                     {"delta", {{"type", "text_delta"}, {"text", piece}}}},
                    "content_block_delta");
  }
  text += SseText({{"type", "content_block_stop"}, {"index", 1}}, "content_block_stop");
  text += SseText({{"type", "message_delta"},
                   {"delta", {{"stop_reason", "end_turn"}}},
                   {"usage", {{"output_tokens", 20}}}},
                  "message_delta");
  return text + SseText({{"type", "message_stop"}}, "message_stop");
}

}  // namespace cudaforge
