#pragma once

namespace moe::measure {

/// Makes Google Benchmark run what is registered from now on in turns: repetitions of all, shuffled.
void interleave_repetitions();

}  // namespace moe::measure
