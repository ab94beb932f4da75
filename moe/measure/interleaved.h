#pragma once

namespace moe {

/// Google Benchmark runs what is registered from now on in turns: repetitions of all, shuffled.
void interleave_repetitions();

}  // namespace moe
