#pragma once
// The experts of one rank, each the same network, sharded over ESP: their outputs are partial sums over that group.
// A new one: derive, and add a row to expert.cpp.
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "moe/layer/parameter.h"
#include "moe/plan/volumes.h"
#include "moe/tensor/math.h"

namespace moe {

/// Rows lie expert after expert (ExpertRows). Every row passes forward once and backward once, in chunks that need not
/// be the same.
class Expert {
 public:
  virtual ~Expert() = default;
  /// Makes room for `rows` rows of all local experts together; keeps nothing that was stored.
  virtual void reserve(int64_t rows) = 0;
  /// output = the experts of rows `rows[e]` of input (reserved rows, M), for each local expert e; output (their sum, M)
  /// has them one after the other. Stores activations of these rows.
  virtual void forward(TensorView input, std::span<const Rows> rows, TensorView output) = 0;
  /// From d_output (rows as forward's output, M): d_input likewise, and the parameters' gradients, which the first
  /// chunk of a backward overwrites and the others add to. `input` is the forward's.
  virtual void backward(TensorView input, std::span<const Rows> rows, TensorView d_output, TensorView d_input,
                        bool first_chunk) = 0;
  /// Replicated and summed over EDP.
  virtual std::vector<Parameter> parameters() = 0;
  /// The parameters' gradients as one vector.
  virtual TensorView gradients() = 0;
};

struct ExpertSetup {
  const RankShape& rank;
  LayerSeed seed;
  Math& math = cpu_math();
};

struct ExpertRow {
  std::string_view name;  // of the Ffn
  std::unique_ptr<Expert> (*make)(const ExpertSetup&);
};

/// Throws BadInput listing the known names.
std::unique_ptr<Expert> make_expert(std::string_view name, const ExpertSetup& setup);

}  // namespace moe
