// The precompiled header of every file that includes libtorch: one parse of the large headers
// instead of many.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
