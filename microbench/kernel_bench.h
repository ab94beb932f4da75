#pragma once
// `microbench --kernels`: the speed of the layer's own kernels on one thread or a GPU, beside their bounds.
#include <span>
#include <string>

#include "microbench/microbench.h"
#include "moe/record/record.h"

namespace moe::microbench {

/// Checks, then times every kernel, into records; prints them. Returns 3 if a kernel is wrong, else 0.
int run_kernel_bench(const MicrobenchOptions& options);

/// Prints records of kernels and returns the exit code. Throws WrongResult afterwards if a kernel is wrong.
int report_kernels(std::span<const CaseRecord> records, const std::string& path, bool json);

}  // namespace moe::microbench
