#pragma once
// What a profile can take from imported records, printed at an import's end.
#include "exchange/exchange.h"

namespace moe::exchange {

/// Fits the records that an import wrote, and says on stderr which rows are good, which are weak, which can't be used
/// and why, what a plan needs beside them, and the next command.
void say_what_fits(const ImportOptions& options);

}  // namespace moe::exchange
