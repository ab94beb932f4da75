#pragma once
// The hook that sends float32 and float64 rows as bfloat16, rounded to nearest even: a half or a quarter of the bytes.
#include "moe/layer/hooks/hook.h"

namespace moe {

std::unique_ptr<Hook> make_bf16_hook(Math& math);

}  // namespace moe
