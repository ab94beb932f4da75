#pragma once
// `microbench --kernels`: compares the speed of moetune's own kernels, on one thread or a GPU, with upper bounds.
#include <span>
#include <string>

#include "microbench/microbench.h"
#include "moe/record/record.h"

namespace moe::microbench {

/// Checks and times every kernel, writes the records and prints them. Returns 3 if a kernel's result is wrong, else 0.
int run_kernel_bench(const MicrobenchOptions& options);

/// Prints records of kernels, then returns the exit code. Throws WrongResult after printing if a kernel's result is
/// wrong.
int report_kernels(std::span<const CaseRecord> records, const std::string& path, bool json);

}  // namespace moe::microbench
