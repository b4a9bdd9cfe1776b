// The device code in device/ and tiles/, embedded by CMake.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "base/embedded_text.h"

namespace cudaforge {

// By path: "device/barrier.cuh".
std::span<const EmbeddedText> DeviceTexts();

}  // namespace cudaforge

namespace cudaforge::tiles {

// The texts of these files, one after the other. REQUIRES: they exist.
std::string DeviceText(std::initializer_list<std::string_view> names);

}  // namespace cudaforge::tiles
