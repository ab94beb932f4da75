#include "moe/base/version.h"

namespace moe {

std::string_view version() { return MOETUNE_VERSION; }

}  // namespace moe
