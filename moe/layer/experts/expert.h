#pragma once
// The experts of one rank, each the same network, sharded over ESP: their outputs are partial sums over that group.
// A new one derives from Expert and has a row in expert.cpp, and its name, summary and GEMMs in moe/shape/parts.h.
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "moe/layer/part.h"
#include "moe/shape/volumes.h"

namespace moe {

/// The tensors that an expert's backward reads and writes.
struct ExpertPass {
  TensorView input;
  std::span<const Rows> rows;
  TensorView d_output, d_input;
};

/// The computation of the experts; rows lie expert after expert (ExpertRows). Every row passes forward once and
/// backward once, in chunks that may differ.
class Expert {
 public:
  virtual ~Expert() = default;
  /// Begins a forward, which passes all rows in chunks; activations stored so far belong to an earlier forward.
  virtual void begin_forward() {}
  /// Allocates memory for `rows` rows of all local experts together, and discards stored activations.
  virtual void reserve(int64_t rows) = 0;
  /// Computes output = the experts of rows `rows[e]` of input (reserved rows, M), for each local expert e; output
  /// (their sum, M) has them one after the other. Stores activations of these rows.
  virtual void forward(TensorView input, std::span<const Rows> rows, TensorView output) = 0;
  /// Computes, from d_output (rows as forward's output, M), d_input with the same rows; the parameters' gradients go
  /// into `gradients`, one after the other. `input` is the forward's.
  virtual void backward(const ExpertPass& pass, TensorView gradients, Into into) = 0;
  /// Computes only d_input, the first half of a backward. d_output has its rows at the same places as input (reserved
  /// rows, M), and must not change until backward_weights() has computed these rows.
  virtual void backward_inputs(const ExpertPass& pass) = 0;
  /// Computes the weights' gradients for rows that backward_inputs() has computed; does not change d_input.
  virtual void backward_weights(const ExpertPass& pass, TensorView gradients, Into into) = 0;
  /// Returns the parameters: replicated and summed over EDP. Their gradients lie in `gradients`.
  virtual std::vector<Parameter> parameters(TensorView gradients) = 0;
  /// Returns all weights, one after the other, or an empty view if tasks can't compute with a copy of them.
  virtual TensorView weights() const { return {}; }
  /// Makes later tasks read the weights from `copy`, which has the size of weights(). parameters() still returns the
  /// original weights.
  virtual void read_weights_from(TensorView copy) { (void)copy; }
};

struct ExpertRow {
  std::string_view name = {};  // name of the Ffn
  std::unique_ptr<Expert> (*make)(const PartSetup&);
};

/// Registers an expert, as register_gate() does a gate, and returns its value for a LayerShape; `part.ffn` is ignored.
/// No autograd reference verifies layers with it.
Ffn register_expert(FfnPart part, ExpertRow row);
/// Makes the experts of the rank `setup.rank`. Throws BadInput listing the known names.
std::unique_ptr<Expert> make_expert(std::string_view name, const PartSetup& setup);

}  // namespace moe
