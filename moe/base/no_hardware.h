#pragma once
#include "moe/base/check.h"

namespace moe {

/// Hardware that is not in this machine, or that this build can't use. Exit 77, which CTest shows as a skip.
class NoHardware : public BadInput {
  using BadInput::BadInput;
};

}  // namespace moe
