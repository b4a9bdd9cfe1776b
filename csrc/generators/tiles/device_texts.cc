#include "generators/tiles/device_texts.h"

#include <algorithm>

#include "base/check.h"

namespace cudaforge::tiles {

std::string DeviceText(std::initializer_list<std::string_view> names) {
  std::string text;
  for (std::string_view name : names) {
    const auto found = std::ranges::find(DeviceTexts(), name, &EmbeddedText::path);
    CF_CHECK(found != DeviceTexts().end()) << "an unknown text";
    text += found->text;
    text += "\n";
  }
  return text;
}

}  // namespace cudaforge::tiles
