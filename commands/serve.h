#pragma once
// `simulate --serve`: batches of inference whose experts are placed by popularity or keep their places.

namespace moe::commands {

struct SimulateOptions;

int run_serve(const SimulateOptions& options);

}  // namespace moe::commands
