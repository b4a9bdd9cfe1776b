// The precompiled header of the tests that do without libtorch.
#pragma once

#include <gtest/gtest.h>

#include "base/pch.h"
