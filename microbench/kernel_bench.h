#pragma once
// `microbench --kernels`: how fast the layer's own kernels are on one thread, or on a GPU, beside what bounds them.
#include <span>
#include <string>

#include "microbench/microbench.h"
#include "moe/record/record.h"

namespace moe::microbench {

/// Checks, then times every kernel, into records; prints them. Returns 3 if a kernel is wrong, else 0.
int run_kernel_bench(const MicrobenchOptions& options);

/// Prints records of kernels; returns the exit code. Throws WrongResult behind them where one is wrong.
int report_kernels(std::span<const CaseRecord> records, const std::string& path, bool json);

}  // namespace moe::microbench
