#include "llm/text.h"

#include <gtest/gtest.h>
