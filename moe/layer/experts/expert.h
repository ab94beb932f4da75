#pragma once
// The experts of one rank, each the same network, sharded over ESP: their outputs are partial sums over that group.
// A new one: derive, and add a row to expert.cpp.
#include <memory>
#include <string_view>
#include <vector>

#include "moe/layer/parameter.h"
#include "moe/plan/volumes.h"

namespace moe {

/// Rows count in the expert layout (wire.h): R = T_rank N_EP N_ESP of each of El local experts. Every row passes
/// forward once and backward once, in chunks that need not be the same.
class Expert {
 public:
  virtual ~Expert() = default;
  /// output (El, rows.count(), M) = experts of rows `rows` of input (El, R, M); stores activations of these rows.
  virtual void forward(TensorView input, Rows rows, TensorView output) = 0;
  /// From d_output (El, rows.count(), M): d_input likewise, and the parameters' gradients, which the first chunk of a
  /// backward overwrites and the others add to. `input` is the forward's.
  virtual void backward(TensorView input, Rows rows, TensorView d_output, TensorView d_input, bool first_chunk) = 0;
  /// Replicated and summed over EDP.
  virtual std::vector<Parameter> parameters() = 0;
};

struct ExpertSetup {
  const RankShape& rank;
  LayerSeed seed;
};

struct ExpertRow {
  std::string_view name;  // of the Ffn
  std::unique_ptr<Expert> (*make)(const ExpertSetup&);
};

/// Throws BadInput listing the known names.
std::unique_ptr<Expert> make_expert(std::string_view name, const ExpertSetup& setup);

}  // namespace moe
