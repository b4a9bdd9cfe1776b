// The precompiled header of every file that includes libtorch. It parses the large headers once.
#pragma once

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>
