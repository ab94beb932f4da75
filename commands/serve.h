#pragma once
// `simulate --serve`: batches of inference, whose experts are placed by popularity or stay where they are.

namespace moe::commands {

struct SimulateOptions;

int run_serve(const SimulateOptions& options);

}  // namespace moe::commands
