#include "binding/torch_pch.h"
